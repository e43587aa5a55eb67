"""Print the output of `docker save` without the first layers. Standard library only: this runs on nodes.

A target with the first layers of an image does not need them: `docker load` does not read layers that exist. The tar
of `docker save` names the layers in manifest.json, its last file. If the names are unknown, the tar is read twice.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from contextlib import contextmanager

BLOCK = tarfile.BLOCKSIZE
CHUNK = 1024 * 1024
EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
"""Headers that belong to the one that follows."""
SIZE = re.compile(rb"^\d+ size=(\d+)$", re.MULTILINE)
"""Record of an extended header. Docker writes zero as the size in the header itself of a member of 8 GiB or more."""


@contextmanager
def saving(image):
    """Yield the tar of an image as a stream, and read it to its end. Errors of `docker save` go to stderr."""
    program = subprocess.Popen(("docker", "save", image), stdout=subprocess.PIPE, bufsize=CHUNK)
    with program.stdout as stream:
        yield stream
        while stream.read(CHUNK):
            pass
    if program.wait():
        sys.exit(1)


def members(stream):
    """Yield name, header and padded size of each member. The caller reads `size` bytes before the next one."""
    head, large = b"", None
    while (block := stream.read(BLOCK)).strip(b"\0"):
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        size = -(-(header.size if large is None else large) // BLOCK) * BLOCK
        head += block
        if header.type in EXTENDED:
            extension = stream.read(size)
            head += extension
            if header.type == tarfile.XHDTYPE and (record := SIZE.search(extension)):
                large = int(record[1])
            continue
        yield header.name, head, size
        head, large = b"", None


def pieces(stream, size):
    """Yield the next `size` bytes, fewer if the tar ends early: `docker save` then fails."""
    while size and (piece := stream.read(min(CHUNK, size))):
        size -= len(piece)
        yield piece


def names(image):
    """Return the names of the layers in the tar, the lowest one first."""
    content = b""
    with saving(image) as stream:
        for name, _, size in members(stream):
            read = b"".join(piece for piece in pieces(stream, size) if name == "manifest.json")
            content = read or content
    return json.loads(content.rstrip(b"\0"))[0]["Layers"]


def main():
    """Print the tar of `image` without its first `skip` layers. `names` are those of all layers, if known."""
    request = json.loads(sys.argv[1])
    image, skip = request["image"], request["skip"]
    layers = request["names"] or (names(image) if skip else [])
    skipped = set(layers[:skip]) - set(layers[skip:])
    out = sys.stdout.buffer
    with saving(image) as stream:
        for name, head, size in members(stream):
            if name not in skipped:
                out.write(head)
            for piece in pieces(stream, size):
                if name not in skipped:
                    out.write(piece)
    out.write(bytes(2 * BLOCK))
    out.flush()


main()
