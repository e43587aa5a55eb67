"""Pinned host keys: one file beside the inventory, keyed by node name, in OpenSSH's format."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from sparkops.config.files import text
from sparkops.errors import ConfigError, HostKeyRefused

REVOKED = "@revoked"


@dataclass(frozen=True)
class Pins:
    """The accepted keys of a node: those pinned under its name, else those in the user's ~/.ssh/known_hosts.

    A key on a line marked @revoked of either file is refused for every node, whatever hosts the line names.
    """

    node: str
    address: str
    port: int
    file: Path

    def load(self, client: paramiko.SSHClient) -> None:
        """Give the client the pinned keys under the name that it looks up, and refuse every other key."""
        for key in self._keys():
            client.get_host_keys().add(self._connected_as, key.get_name(), key)
        client.set_missing_host_key_policy(_Refuse(self))

    @property
    def _connected_as(self) -> str:
        return self.address if self.port == 22 else f"[{self.address}]:{self.port}"

    def _keys(self) -> list[paramiko.PKey]:
        revoked = self._revoked()
        for file, name in ((self.file, self.node), (_user_file(), self._connected_as)):
            keys = _accepted(file, revoked).lookup(name)
            if keys:
                return list(keys.values())
        return []

    def _revoked(self) -> frozenset[bytes]:
        entries = (*_entries(self.file), *_entries(_user_file()))
        return frozenset(entry.key.asbytes() for marker, entry in entries if marker == REVOKED)

    def known(self) -> bool:
        """Return whether any key is pinned for the node."""
        return bool(self._keys())

    def has(self, key: paramiko.PKey) -> bool:
        """Return whether exactly this key is pinned."""
        return key in self._keys()

    def check(self, key: paramiko.PKey, expected: str, *, replace: bool) -> bool:
        """Return whether the key is pinned already; False if it may be pinned.

        Raises HostKeyRefused if it is revoked, is not the `expected` fingerprint (empty: any), or if another key is
        pinned and not to be replaced.
        """
        pinned, mismatched = self.has(key), bool(expected) and fingerprint_of(key) != expected
        if self.is_revoked(key) or mismatched or (self.known() and not pinned and not replace):
            raise self.refusal(key, expected)
        return pinned

    def refusal(self, key: paramiko.PKey, expected: str = "") -> HostKeyRefused:
        """Return the error for a key: revoked, not the `expected` one, other than the pinned one, or unknown."""
        shown = f"{key.get_name()} {fingerprint_of(key)}"
        if self.is_revoked(key):
            problem = f"host key refused: {shown} is marked @revoked"
            step = f"Create new host keys on the node (ssh-keygen -A), then: sparkops node trust --replace {self.node}"
        elif expected and fingerprint_of(key) != expected:
            problem = f"host key refused: got {shown}, expected {expected}"
            kind = key.get_name().removeprefix("ssh-").partition("-")[0]
            step = f"Compare on the node's own screen: ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub"
        elif self.known():
            problem = f"its host key has changed to {shown}: another machine may be answering"
            step = f"If the node was reinstalled: sparkops node trust --replace {self.node}"
        else:
            problem = f"its host key is not pinned ({shown})"
            step = f"Compare the fingerprint on the node's own screen, then: sparkops node trust {self.node}"
        return HostKeyRefused(self.node, problem, next_step=step)

    def is_revoked(self, key: paramiko.PKey) -> bool:
        """Return whether a line marked @revoked names the key."""
        return key.asbytes() in self._revoked()

    def write(self, key: paramiko.PKey) -> None:
        """Pin `key` for the node in place of any other. The file is replaced atomically."""
        kept = [rest for line in _lines(self.file) if (rest := self._without(line)) is not None]
        entry = f"{self.node} {key.get_name()} {key.get_base64()}"
        _replace(self.file, [*kept, entry])

    def _without(self, line: str) -> str | None:
        """Return the line without this node; None if it names no other."""
        names, space, key = line.partition(" ")
        others = [name for name in names.split(",") if name != self.node]
        return ",".join(others) + space + key if others else None


def rename(file: Path, names: Mapping[str, str]) -> None:
    """Rename nodes in a file of pinned keys. The file is replaced atomically."""
    lines, renamed = _lines(file), list[str]()
    for line in lines:
        hosts, space, key = line.partition(" ")
        renamed.append(",".join(names.get(host, host) for host in hosts.split(",")) + space + key)
    if renamed != lines:
        _replace(file, renamed)


def _replace(file: Path, lines: Sequence[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.new")
    new.write_text("\n".join(lines) + "\n")
    os.replace(new, file)  # noqa: PTH105 - replaces on every system


class _Refuse(paramiko.MissingHostKeyPolicy):
    def __init__(self, pins: Pins) -> None:
        self.pins = pins

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002
        raise self.pins.refusal(key)


def fingerprint_of(key: paramiko.PKey) -> str:
    """Return SHA256:..., as ssh-keygen -l prints it."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _user_file() -> Path:
    return Path("~/.ssh/known_hosts").expanduser()


def _accepted(file: Path, revoked: frozenset[bytes]) -> paramiko.HostKeys:
    keys = paramiko.HostKeys()
    for marker, entry in _entries(file):
        if not marker and entry.key.asbytes() not in revoked:
            for name in entry.hostnames:
                keys.add(name, entry.key.get_name(), entry.key)
    return keys


def _entries(file: Path) -> Iterator[tuple[str, HostKeyEntry]]:
    """Yield the marker (empty or @revoked) and the key of each line. Lines of certificate authorities hold none."""
    for number, line in enumerate(_lines(file), 1):
        marker, rest = _marked(line)
        try:
            entry = HostKeyEntry.from_line(rest) if marker in ("", REVOKED) and rest else None
        except (InvalidHostKey, ValueError, paramiko.SSHException):
            raise ConfigError(file, number, "", "expected a host key as in OpenSSH's known_hosts") from None
        if entry is not None:
            yield marker, entry


def _marked(line: str) -> tuple[str, str]:
    """Split a line into its marker, if any, and the rest; a comment has no rest."""
    if line.startswith("#"):
        return "", ""
    marker, *rest = line.split(maxsplit=1) if line.startswith("@") else ("", line)
    return marker, "".join(rest)


def _lines(file: Path) -> list[str]:
    try:
        return [line.strip() for line in text(file).splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            file, 1, "", f"cannot be read: {error.strerror if isinstance(error, OSError) else error}"
        ) from None
