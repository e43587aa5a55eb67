"""Print layers of an image as a tar for `docker load`, read from Docker's own store. Standard library only.

`docker save` of that store writes every layer of an image to disk before it prints the first byte, also unneeded ones.
The store has the files of each layer in a directory, and beside it, in tar-split.json.gz, all other bytes of the
layer's tar. Both together are the original tar; `docker load` verifies it with the digest in the image. This runs in a
container that has the store read-only.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import sys
import tarfile
import threading

STORE, FILES = "/store/image", "/store/layers"
CHUNK = 1024 * 1024
IN_FILE, BETWEEN = 1, 2
"""Kinds of an entry of tar-split: bytes of a file, and bytes between files."""


def chains(layers):
    """Yield the store's name of each layer with all layers below it, the lowest one first."""
    name = ""
    for layer in layers:
        name = "sha256:" + hashlib.sha256(f"{name} {layer}".encode()).hexdigest() if name else layer
        yield name


def place_of(chain):
    """Return the store's directory of a layer."""
    return os.path.join(STORE, "layerdb", *chain.split(":"))


def parts(chain):
    """Yield the parts of a layer's tar: bytes, or the path of a file with the bytes, and their number."""
    place = place_of(chain)
    with open(os.path.join(place, "cache-id")) as noted:
        root = os.path.join(FILES, noted.read(), "diff")
    with gzip.open(os.path.join(place, "tar-split.json.gz")) as split:
        for line in split:
            entry = json.loads(line)
            if entry["type"] == BETWEEN:
                content = base64.b64decode(entry["payload"])
                yield content, None, len(content)
            elif entry["type"] == IN_FILE and entry.get("size"):
                name = base64.b64decode(entry["name_raw"]) if "name_raw" in entry else entry["name"].encode()
                yield b"", os.path.join(root.encode(), name.lstrip(b"/")), entry["size"]


def put(out, name, size):
    """Write the header of a file."""
    header = tarfile.TarInfo(name)
    header.size = size
    out.write(header.tobuf(tarfile.GNU_FORMAT))


def put_all(out, name, content):
    """Write a file with this content."""
    put(out, name, len(content))
    pad(out, content, len(content))


def pad(out, content, size):
    """Write `content`, and the padding of `size` to a block."""
    out.write(content + bytes(-size % tarfile.BLOCKSIZE))


def put_layer(out, name, chain):
    """Write the tar of a layer. Its size comes first, so the parts are read twice."""
    size = sum(number for _, _, number in parts(chain))
    put(out, name, size)
    for content, path, number in parts(chain):
        out.write(content)
        if path:
            put_file(out, path, number)
    pad(out, b"", size)


def put_file(out, path, size):
    with open(path, "rb") as file:
        while size:
            piece = file.read(min(CHUNK, size))
            if not piece:
                sys.exit(f"{os.fsdecode(path)} is shorter than Docker's record: {size} bytes are missing")
            out.write(piece)
            size -= len(piece)


def watch_stdin():
    """Exit at the end of stdin, which the caller keeps open."""

    def wait():
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main():
    """Print `image` without its first `skip` layers; `layers` are the digests of all of them."""
    request = json.loads(sys.argv[1])
    watch_stdin()
    kind, _, image = request["image"].partition(":")
    with open(os.path.join(STORE, "imagedb", "content", kind, image), "rb") as file:
        config = file.read()
    names = [f"{layer.partition(':')[2]}.tar" for layer in request["layers"]]
    needed = [*zip(names, chains(request["layers"]))][request["skip"] :]
    out = sys.stdout.buffer
    put_all(out, f"{image}.json", config)
    for name, chain in dict(needed).items():
        put_layer(out, name, chain)
    manifest = [{"Config": f"{image}.json", "RepoTags": None, "Layers": names}]
    put_all(out, "manifest.json", json.dumps(manifest).encode())
    out.write(bytes(2 * tarfile.BLOCKSIZE))
    out.flush()


main()
