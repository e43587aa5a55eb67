"""Digests of inventories that passed the checks of config.inventory, so that `status` need not repeat them."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from sparkops import __version__

MOST = 64
"""Number of digests in the file."""


def is_checked(text: bytes) -> bool:
    """Return whether an inventory of that text passed the checks of this version."""
    return _digest(text) in _digests()


def note(text: bytes) -> None:
    """Record that an inventory of that text passed. If nothing can be written, every call checks it."""
    digests = [digest for digest in _digests() if digest != _digest(text)]
    with suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        _file().write_text("".join(f"{digest}\n" for digest in [*digests, _digest(text)][-MOST:]))


def _digests() -> list[str]:
    try:
        return _file().read_text().splitlines()
    except (OSError, ValueError):
        return []


def _digest(text: bytes) -> str:
    return hashlib.sha256(f"{__version__}\n".encode() + text).hexdigest()


def _file() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "sparkops" / "checked-inventories"
