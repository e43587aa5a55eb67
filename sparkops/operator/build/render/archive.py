"""Stream a build context as tar. The same context gives the same bytes."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from sparkops.config.assets import WheelFile
from sparkops.errors import SparkopsError
from sparkops.operator.build.render.context import Context

CHUNK = 1024 * 1024
END = bytes(tarfile.BLOCKSIZE * 2)


def tar(context: Context, open_file: Callable[[Path], BinaryIO]) -> Iterator[bytes]:
    """Yield the tar in chunks of at most 1 MiB. `open_file` opens a wheel; no other file is read."""
    for path, content in context.files:
        size = content.size if isinstance(content, WheelFile) else len(content)
        yield _header(path, size)
        if isinstance(content, WheelFile):
            yield from _stream(content, open_file)
        else:
            yield content
        yield bytes(-size % tarfile.BLOCKSIZE)
    yield END


def _header(path: str, size: int) -> bytes:
    member = tarfile.TarInfo(path)  # its time, user and group are 0
    member.size = size
    if path.endswith("/"):
        member.type, member.mode = tarfile.DIRTYPE, 0o755
    return member.tobuf(tarfile.PAX_FORMAT)


def _stream(wheel: WheelFile, open_file: Callable[[Path], BinaryIO]) -> Iterator[bytes]:
    missing = wheel.size
    with open_file(wheel.path) as file:
        while chunk := file.read(min(CHUNK, missing + 1)):
            missing -= len(chunk)
            yield chunk
    if missing:
        raise SparkopsError(f"{wheel.path} changed while it was sent", next_step="Run the command again.")
