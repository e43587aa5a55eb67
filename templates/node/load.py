"""Load one image without a name with `docker load`. Standard library only: this runs on nodes.

A tar for `docker load` may have several images, each with any name, such as that of the guard, which would then start
from another node's content. So headers and metadata are rewritten from the checked values, and the end of the tar is
sent only after the last check. Docker loads nothing before it.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import tarfile

CHUNK = 1024 * 1024
LARGEST_METADATA = 4 * CHUNK
HEX = "[0-9a-f]{64}"
CONTENT = re.compile(rf"blobs/sha256/{HEX}|{HEX}\.(json|tar)|{HEX}/(VERSION|json|layer\.tar)")
DIRECTORY = re.compile(rf"blobs(/sha256)?|{HEX}")
LINK = re.compile(rf"{HEX}/layer\.tar \.\./{HEX}/layer\.tar")
"""Docker Engine before 25 saves a layer that occurs twice as a symbolic link."""
NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
"""Annotations that containerd's store takes for a name."""


class Refused(Exception):
    """The tar is not one image without a name."""


def manifest(images):
    """Return manifest.json of one image without a name."""
    if len(images) != 1:
        raise Refused(f"expected one image, got {len(images)}")
    if images[0].get("RepoTags"):
        raise Refused(f"expected an image without tags, got {', '.join(images[0]['RepoTags'])}")
    return [{"Config": images[0]["Config"], "RepoTags": None, "Layers": images[0]["Layers"]}]


def index(content):
    """Return index.json of one image without a name."""
    images = content["manifests"]
    if len(images) != 1:
        raise Refused(f"expected one image, got {len(images)}")
    if named := [text for key, text in (images[0].get("annotations") or {}).items() if key in NAMES]:
        raise Refused(f"expected an image without tags, got {', '.join(named)}")
    image = {key: images[0][key] for key in ("mediaType", "digest", "size", "platform") if key in images[0]}
    return {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [image]}


def layout(_):
    """Return oci-layout."""
    return {"imageLayoutVersion": "1.0.0"}


METADATA = {"manifest.json": manifest, "index.json": index, "oci-layout": layout}


def allowed(member):
    """Return whether a member other than metadata may be in the tar of an image."""
    if member.issym():
        return LINK.fullmatch(f"{member.name} {member.linkname}")
    kind = DIRECTORY if member.isdir() else CONTENT if member.isreg() and not member.issparse() else None
    return kind and kind.fullmatch(member.name)


def metadata(name, file, size):
    """Return a metadata file, rewritten."""
    if size > LARGEST_METADATA:
        raise Refused(f"expected at most {LARGEST_METADATA} bytes of {name}, got {size}")
    try:
        return json.dumps(METADATA[name](json.load(file))).encode()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Refused(f"{name} cannot be read: {type(error).__name__}: {error}") from None


def put(out, name, file, size, **settings):
    """Write one member."""
    header = tarfile.TarInfo(name)
    header.size = size
    for key, value in settings.items():
        setattr(header, key, value)
    out.write(header.tobuf(tarfile.GNU_FORMAT))
    shutil.copyfileobj(file, out, CHUNK)
    out.write(bytes(-size % tarfile.BLOCKSIZE))


def copy(stream, out):
    """Write the image in `stream`. Raises Refused, and tarfile.TarError for a truncated stream."""
    metadata_left = set(METADATA)
    with tarfile.open(fileobj=stream, mode="r|", bufsize=CHUNK) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else io.BytesIO()
            if member.isreg() and member.name in metadata_left:
                metadata_left.remove(member.name)
                text = metadata(member.name, file, member.size)
                put(out, member.name, io.BytesIO(text), len(text))
            elif allowed(member):
                mode = 0o755 if member.isdir() else 0o644
                put(out, member.name, file, member.size, type=member.type, linkname=member.linkname, mode=mode)
            else:
                raise Refused(f"unexpected member {member.name!r}")
    if "manifest.json" in metadata_left:
        raise Refused("manifest.json is missing")
    out.write(bytes(2 * tarfile.BLOCKSIZE))


def main():
    """Feed the program of the arguments with the image on stdin. If this fails, nothing is loaded."""
    loading = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
    try:
        copy(sys.stdin.buffer, loading.stdin)
        while sys.stdin.buffer.read(CHUNK):
            pass
        loading.stdin.close()
    except BrokenPipeError:
        sys.exit(loading.wait() or f"{sys.argv[1]} ended before the end of the image")
    except (Refused, tarfile.TarError) as error:
        loading.kill()
        loading.wait()
        sys.exit(f"the image was refused: {error}")
    sys.exit(loading.wait())


main()
