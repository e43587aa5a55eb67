"""The settings of a host in the operator's own SSH configuration."""

from __future__ import annotations

from pathlib import Path

import paramiko
from paramiko.pkey import UnknownKeyType

from sparkops.errors import UsageError

FILE = "~/.ssh/config"


def lookup(address: str) -> dict[str, str]:
    """Return address, user, port and ssh_key of a host as far as ~/.ssh/config has them. Raises UsageError."""
    file = Path(FILE).expanduser()
    try:
        found = paramiko.SSHConfig.from_path(file).lookup(address) if file.is_file() else {}
    except (OSError, ImportError, ValueError, paramiko.SSHException) as error:  # `Match exec` needs another package
        raise UsageError(f"{file}: cannot be read: {error}", next_step="Name the SSH user with --user.") from None
    keys = filter(_opens, found.get("identityfile", ()))
    named = {"address": found.get("hostname"), "user": found.get("user"), "port": found.get("port")}
    return {key: value for key, value in (*named.items(), ("ssh_key", next(keys, None))) if value}


def _opens(key: str) -> bool:
    """Return whether a key needs no passphrase. Others are left to the agent."""
    try:
        paramiko.PKey.from_path(key)
    except (OSError, TypeError, ValueError, paramiko.SSHException, UnknownKeyType):
        return False
    return True
