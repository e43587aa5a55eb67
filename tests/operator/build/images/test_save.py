"""What a node sends of an image: the program runs as on a node, beside a `docker save` that prints a prepared tar."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from sparkops.operator.build.images import delivery

END = bytes(2 * tarfile.BLOCKSIZE)
LAYERS = {f"blobs/sha256/{digit * 64}": digit.encode() * 700 for digit in "abc"}


def member(name: str, content: bytes, *, large: bool = False) -> bytes:
    """A member of a tar, `large` as Docker writes one of 8 GiB or more: its size is in an extended header only."""
    padded = content + bytes(-len(content) % tarfile.BLOCKSIZE)
    header = tarfile.TarInfo(name)
    if not large:
        header.size = len(content)
        return header.tobuf(tarfile.USTAR_FORMAT) + padded
    record = f"{len(content)}".join(("12 size=", "\n")).encode()
    assert len(record) == 12
    extended = tarfile.TarInfo("PaxHeaders.0/blob")
    extended.type, extended.size = tarfile.XHDTYPE, len(record)
    records = record + bytes(-len(record) % tarfile.BLOCKSIZE)
    return extended.tobuf(tarfile.USTAR_FORMAT) + records + header.tobuf(tarfile.USTAR_FORMAT) + padded


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("skip", [0, 1])
def test_layers_of_any_size_are_sent_but_those_that_the_target_has(
    tmp_path: Path, skip: int, *, known: bool, large: bool
) -> None:
    manifest = [{"Config": "c.json", "RepoTags": None, "Layers": list(LAYERS)}]
    layers = b"".join(member(name, content, large=large) for name, content in LAYERS.items())
    (tmp_path / "saved").write_bytes(layers + member("manifest.json", json.dumps(manifest).encode()) + END)
    (tmp_path / "docker").write_text(f"#!/bin/sh\nexec cat {tmp_path}/saved\n")
    (tmp_path / "docker").chmod(0o755)
    program = delivery.save_image("sha256:1", skip, tuple(LAYERS) if known else ())

    sent = subprocess.run(
        (sys.executable, *program.argv[1:]), env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, check=True
    )

    with tarfile.open(fileobj=io.BytesIO(sent.stdout)) as tar:
        read = {name: tar.extractfile(name) for name in tar.getnames()}
        contents = {name: file.read() for name, file in read.items() if file}
    assert contents.pop("manifest.json")
    assert contents == dict(list(LAYERS.items())[skip:])
