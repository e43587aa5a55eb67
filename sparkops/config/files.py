"""Read a file of the operator: a regular one of limited size, without waiting for a pipe or a device.

Recipes that come with sparkops are read in the same way, though a wheel has them in an archive.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePath

from sparkops.config import shipped

MOST = 16 * 2**20
"""Limit in bytes where a caller has none of its own."""
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""How a file is opened: a pipe without a writer does not block."""
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
    return _content(os.open(file, FLAGS), file, most)


def inside(root: Path, path: PurePath, most: int = MOST) -> bytes:
    """Return the content of a regular file of a foreign directory `root`: no symbolic link below it is followed.

    `path` is relative to `root`. Raises OSError as `read` does; ELOOP for a link.
    """
    file = root / path
    if path.is_absolute() or ".." in path.parts or "\0" in str(path):
        raise OSError(errno.EINVAL, f"not a path below {root}", str(file))
    descriptor = os.open(root, FLAGS)
    try:
        for part in path.parts:
            outer, descriptor = descriptor, os.open(part, FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(outer)
    except OSError as error:
        os.close(descriptor)
        reason = f"{part} is a symbolic link, which is not followed" if error.errno == errno.ELOOP else error.strerror
        raise OSError(error.errno, reason, str(file)) from None
    return _content(descriptor, file, most)


def _content(descriptor: int, file: Path, most: int) -> bytes:
    """Return the content of an open file, and close it. Raises OSError, with the reason as its strerror."""
    with os.fdopen(descriptor, "rb") as opened:
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
