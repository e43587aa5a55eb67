"""A context as a tar."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from sparkops.config.assets import WheelFile
from sparkops.errors import SparkopsError
from sparkops.operator.build.render.archive import CHUNK, tar
from sparkops.operator.build.render.context import Context

LONG = "wheels/" + "x" * 150 + ".whl"
BYTES = bytes(range(256)) * (CHUNK // 100)


def opened(path: Path) -> BinaryIO:
    return path.open("rb")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "w.whl").write_bytes(BYTES)
    wheel = WheelFile("w.whl", tmp_path / "w.whl", hashlib.sha256(BYTES).hexdigest(), len(BYTES))
    files = ("Dockerfile", b"FROM a\n"), ("ca/", b""), (LONG, wheel), ("wheels/empty.whl", b"")
    return Context(files, {}, "d")


def members(chunks: Iterator[bytes]) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        return {member.name: (member, content(archive, member)) for member in archive}


def content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read() if file else b""


def test_a_tar_holds_every_file_and_directory(context: Context) -> None:
    contents = members(tar(context, opened))

    assert {name: data for name, (_, data) in contents.items()} == {
        "Dockerfile": b"FROM a\n",
        "ca": b"",
        LONG: BYTES,
        "wheels/empty.whl": b"",
    }
    assert [name for name, (member, _) in contents.items() if member.isdir()] == ["ca"]


def test_the_same_context_gives_the_same_bytes(context: Context) -> None:
    assert b"".join(tar(context, opened)) == b"".join(tar(context, opened))
    for member, _ in members(tar(context, opened)).values():
        assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")


def test_a_wheel_is_streamed(context: Context) -> None:
    assert max(len(chunk) for chunk in tar(context, opened)) == CHUNK


@pytest.mark.parametrize("now", [BYTES[:-1], BYTES + b"x", b""], ids=["shorter", "longer", "empty"])
def test_a_wheel_that_changed_since_it_was_hashed_ends_the_stream(context: Context, tmp_path: Path, now: bytes) -> None:
    (tmp_path / "w.whl").write_bytes(now)

    with pytest.raises(SparkopsError, match="changed while it was sent"):
        list(tar(context, opened))
