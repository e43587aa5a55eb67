"""What `docker save` prints of an image, without the first layers. Standard library only: this runs on nodes.

A target that holds the first layers of an image needs them not: `docker load` does not read what it has. The tar that
`docker save` prints names each layer in manifest.json, which comes last. Where the names are not known beforehand, the
tar is read twice: once for the names.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from contextlib import contextmanager

BLOCK = tarfile.BLOCKSIZE
CHUNK = 1024 * 1024
EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
"""Headers that belong to the one that follows."""


@contextmanager
def saving(image):
    """The tar of an image as a stream, read to its end. What `docker save` says of an error goes to our stderr."""
    program = subprocess.Popen(("docker", "save", image), stdout=subprocess.PIPE, bufsize=CHUNK)
    with program.stdout as stream:
        yield stream
        while stream.read(CHUNK):
            pass
    if program.wait():
        sys.exit(1)


def members(stream):
    """What is in a tar, as it comes: name, header and padded size. Whoever asks reads `size` bytes before the next."""
    head = b""
    while (block := stream.read(BLOCK)).strip(b"\0"):
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        size = -(-header.size // BLOCK) * BLOCK
        head += block
        if header.type in EXTENDED:
            head += stream.read(size)
            continue
        yield header.name, head, size
        head = b""


def pieces(stream, size):
    """The next `size` bytes. A tar that ends before is followed by what `docker save` says of it."""
    while size and (piece := stream.read(min(CHUNK, size))):
        size -= len(piece)
        yield piece


def names(image):
    """The names of the layers in the tar, the lowest one first."""
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
