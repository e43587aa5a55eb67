"""Read a file of the operator: a regular one of limited size, without waiting for a pipe or a device.

Recipes that come with sparkops are read in the same way, though a wheel has them in an archive.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from sparkops.config import shipped

MOST = 16 * 2**20
"""Limit in bytes where a caller has none of its own."""
OTHERS = 0o077
"""Permission bits of group and others, which the file of a secret must not have."""
KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


def read(file: Path, most: int = MOST) -> bytes:
    """Return the content of a regular file of at most `most` bytes, also through a symbolic link.

    Raises OSError, with the reason as its strerror.
    """
    packed = None if os.path.lexists(file) else shipped.packed(file)
    if packed is not None:
        return packed
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer does not block
    with os.fdopen(descriptor, "rb", closefd=True) as opened:
        if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
            kind = KINDS.get(stat.S_IFMT(mode), "a special file")
            raise OSError(errno.EINVAL, f"expected a regular file, got {kind}", str(file))
        content = opened.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(file))
    return content


def text(file: Path, most: int = MOST, errors: str = "strict") -> str:
    """Return the text of a file in UTF-8. Raises OSError as `read` does, and UnicodeDecodeError."""
    return read(file, most).decode(errors=errors)
