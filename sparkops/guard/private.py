"""Files that only their owner may read: logs and transcripts hold what clients wrote."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def write(directory: Path, files: Mapping[str, str]) -> None:
    """Write texts by file name, 0600 in a directory of 0700, whatever mode they had before. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    for name, text in files.items():
        (directory / name).unlink(missing_ok=True)
        with os.fdopen(os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
