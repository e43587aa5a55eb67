"""Images in a directory of the OCI image layout (version 1.0.0): index.json, and blobs named by their SHA-256.

A layer is stored once, whatever number of images has it. A file gets its name after its digest is known, and an image
its entry in index.json after all of its blobs are stored: an interrupted write leaves complete blobs and no half image.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sparkops import foreign
from sparkops.errors import SparkopsError, UsageError
from sparkops.images.layers import DockerImage

CHUNK = 1024 * 1024
INDEX, MARK = "index.json", "oci-layout"
PART = ".part"
NAME, CONTENT, VERSION = "org.opencontainers.image.ref.name", "sparkops.content", "sparkops.version"
"""Annotations of an image: its tag, its content as `image_content` defines it, and the sparkops that exported it."""
LAYER = "application/vnd.oci.image.layer.v1.tar"
COMPRESSED: Mapping[bytes, str] = {b"\x1f\x8b": "+gzip", b"\x28\xb5\x2f\xfd": "+zstd"}
"""Suffix of a layer's media type by its first bytes."""
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
NAMED_BY_DIGEST = re.compile(r"(?:blobs/sha256/)?([0-9a-f]{64})(?:\.tar|/layer\.tar)?")
CONTENT_FILE = re.compile(r"blobs/sha256/[0-9a-f]{64}|[0-9a-f]{64}(\.json|\.tar|/layer\.tar)")
"""Settings and layers in the tar of an image."""
LARGEST_METADATA = 4 * 1024 * 1024
"""Bytes of index.json, a manifest or the settings of an image, as in templates/node/load.py."""


@dataclass(frozen=True)
class Blob:
    """A file of the layout. `digest` is sha256: and 64 hex digits; `size` in bytes."""

    digest: str
    size: int
    media: str = LAYER

    @property
    def descriptor(self) -> dict[str, object]:
        return {"mediaType": self.media, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class StoredImage:
    """A complete image. `layers` are its blobs, the lowest one first; `digest` is that of its manifest."""

    tag: str
    digest: str
    content: str
    version: str
    architecture: str
    config: Blob
    layers: tuple[Blob, ...]
    diffs: tuple[str, ...]
    """The digest of each layer's uncompressed content, as Docker knows it."""
    labels: Mapping[str, str]

    @property
    def blobs(self) -> tuple[str, ...]:
        """The digest of each layer's file."""
        return tuple(layer.digest for layer in self.layers)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each layer."""
        return tuple(layer.size for layer in self.layers)

    @property
    def image(self) -> DockerImage:
        """The image as Docker describes it, to compare it with those of a node."""
        size, name = sum(self.sizes), self.config.digest
        return DockerImage(name, (self.tag,), self.diffs, self.content, size, self.labels, self.architecture)


class ImageCutOff(SparkopsError):
    """A received image ended before all of it had arrived."""


class _Hashed:
    """A stream that counts and hashes what is read from it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.hash, self.size = file, hashlib.sha256(), 0

    def pieces(self) -> Iterator[bytes]:
        while piece := self.file.read(CHUNK):
            self.hash.update(piece)
            self.size += len(piece)
            yield piece

    @property
    def digest(self) -> str:
        return f"sha256:{self.hash.hexdigest()}"


@dataclass(frozen=True)
class Layout:
    """A directory with images. All methods raise SparkopsError with the file that is wrong, and the next step."""

    directory: Path

    def path(self, digest: str) -> Path:
        """Return the file of a blob. Raises SparkopsError for another text than a digest: it would be another file."""
        if not DIGEST.fullmatch(digest):
            raise self._damaged(self.directory / INDEX, f"expected sha256: and 64 hex digits, got {digest[:80]!r}")
        return self.directory / "blobs" / "sha256" / digest.partition(":")[2]

    def has(self, digest: str, size: int | None = None) -> bool:
        """Return whether a blob is stored, if `size` is known with as many bytes."""
        try:
            stored = self.path(digest).stat().st_size
        except OSError:
            return False
        return size is None or stored == size

    @property
    def exists(self) -> bool:
        """Whether an image was exported to it."""
        return (self.directory / INDEX).exists()

    def images(self) -> dict[str, StoredImage]:
        """Return the images by tag. Raises UsageError for a directory without any."""
        if not self.exists:
            problem = f"{self.directory} has no {INDEX}: no image was exported to it"
            raise UsageError(problem, next_step="sparkops images export RECIPE DIRECTORY --node NODE")
        return {image.tag: image for image in map(self._image, self._index())}

    def readable(self) -> list[StoredImage]:
        """Return the images whose files can be read: an export replaces the others."""
        read = []
        for entry in self._index():
            with suppress(SparkopsError):
                read.append(self._image(entry))
        return read

    def _index(self) -> list[Mapping[str, Any]]:
        if not self.exists:
            return []
        file = self.directory / INDEX
        entries = self._json(file, self._read(file)).get("manifests")
        if not isinstance(entries, list):
            raise self._damaged(file, "has no list of manifests")
        return entries

    def _image(self, entry: Mapping[str, Any]) -> StoredImage:
        file = self.directory / INDEX
        try:
            notes = entry["annotations"]
            manifest = self._metadata(entry["digest"])
            config = self._metadata(manifest["config"]["digest"])
            layers = [Blob(layer["digest"], int(layer["size"]), layer["mediaType"]) for layer in manifest["layers"]]
            read = StoredImage(
                tag=str(notes[NAME]),
                digest=entry["digest"],
                content=str(notes[CONTENT]),
                version=str(notes[VERSION]),
                architecture=str(config["architecture"]),
                config=Blob(manifest["config"]["digest"], int(manifest["config"]["size"])),
                layers=tuple(layers),
                diffs=tuple(config["rootfs"]["diff_ids"]),
                labels=config["config"].get("Labels") or {},
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise self._damaged(file, f"is not an index of sparkops: {type(error).__name__}: {error}") from None
        if len(read.layers) != len(read.diffs):
            raise self._damaged(file, f"{read.tag} has {len(read.layers)} layers, expected {len(read.diffs)}")
        return read

    def require_whole(self, image: StoredImage) -> None:
        """Require that all blobs of an image are stored with their sizes. `tar` compares their digests."""
        for blob in (image.config, *image.layers):
            if not self.has(blob.digest, blob.size):
                raise self._damaged(self.path(blob.digest), f"of {image.tag}: expected a file of {blob.size} bytes")

    def tar(self, image: StoredImage, skip: int = 0) -> Iterator[bytes]:
        """Yield an image without its first `skip` layers as a tar for `docker load`, in chunks of at most 1 MiB.

        Its name is not in it. Raises SparkopsError at a blob with another digest before the tar is complete, so that
        Docker loads nothing.
        """
        config = self.path(image.config.digest).read_bytes()
        if f"sha256:{hashlib.sha256(config).hexdigest()}" != image.config.digest:
            raise self._damaged(self.path(image.config.digest), "its SHA-256 is another one than its name")
        hexes = [layer.digest.partition(":")[2] for layer in image.layers]
        yield from _member(f"{image.config.digest.partition(':')[2]}.json", config)
        for layer in dict.fromkeys(image.layers[skip:]):
            yield from self._layer(layer)
        names = [f"{digest}.tar" for digest in hexes]
        manifest = [{"Config": f"{image.config.digest.partition(':')[2]}.json", "RepoTags": None, "Layers": names}]
        yield from _member("manifest.json", json.dumps(manifest).encode())
        yield bytes(2 * tarfile.BLOCKSIZE)

    def _layer(self, layer: Blob) -> Iterator[bytes]:
        path = self.path(layer.digest)
        yield _header(f"{layer.digest.partition(':')[2]}.tar", layer.size)
        try:
            with path.open("rb") as file:
                hashed = _Hashed(file)
                yield from hashed.pieces()
        except OSError as error:
            raise self._damaged(path, f"cannot be read: {error.strerror}") from None
        if (hashed.digest, hashed.size) != (layer.digest, layer.size):
            raise self._damaged(path, f"its SHA-256 is {hashed.digest.partition(':')[2]}, another one than its name")
        yield bytes(-layer.size % tarfile.BLOCKSIZE)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the directory for one export: make it, and remove what an interrupted one has not completed."""
        try:
            self._blobs().mkdir(parents=True, exist_ok=True)
            handle = os.open(self.directory, os.O_RDONLY)
        except OSError as error:
            raise self._unwritable(self.directory, error) from None
        try:
            self._lock(handle)
            for left in self._blobs().glob(f"*{PART}"):
                left.unlink()
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SparkopsError(f"another export writes to {self.directory}", next_step="Retry when it ends.") from None

    def require_room(self, need: int) -> None:
        """Require free space for `need` bytes."""
        free = shutil.disk_usage(self.directory).free
        if free < need:
            problem = f"{self.directory}: {free / 1e9:.2f} GB free, {need / 1e9:.2f} GB needed"
            raise SparkopsError(problem, next_step="Free space, or name a directory on another disk.")

    def stored_below(self, image: DockerImage) -> int:
        """Count the lowest layers of an image of a node that are stored, under the digests of their content."""
        count = 0
        while count < len(image.layers) and self.has(image.layers[count]):
            count += 1
        return count

    def receive(self, stream: IO[bytes], image: DockerImage, tag: str, version: str) -> StoredImage:
        """Store an image from the tar of `docker save` or of templates/node/graph.py, which may lack stored layers.

        Returns it after its entry is in the index. Raises SparkopsError if the stream ends early or differs from
        `image`; complete blobs stay for the next try.
        """
        blobs: dict[str, Blob] = {}
        links: dict[str, str] = {}
        listed = b""
        try:
            with tarfile.open(fileobj=stream, mode="r|", bufsize=CHUNK) as tar:
                for member in tar:
                    file = tar.extractfile(member) if member.isreg() else None
                    if member.issym():  # Docker Engine before 25: a layer that occurs twice
                        links[member.name] = member.linkname.removeprefix("../")
                    elif file and member.name == "manifest.json":
                        listed = file.read(LARGEST_METADATA)
                    elif file and CONTENT_FILE.fullmatch(member.name):
                        blobs[member.name] = self._store(file)
        except tarfile.TarError as error:
            raise _ended_early(str(error)) from None
        if not listed:
            raise _ended_early("manifest.json is missing")
        try:
            [manifest] = foreign.loads(listed)
            names, config = [links.get(name, name) for name in manifest["Layers"]], blobs[manifest["Config"]]
            settings = self._metadata(config.digest)
            diffs = [*settings["rootfs"]["diff_ids"]]
        except (KeyError, TypeError, ValueError) as error:
            raise SparkopsError(f"{tag}: the received image cannot be read: {type(error).__name__}: {error}") from None
        layers = [blobs[name] if name in blobs else self._stored(name) for name in names]
        plain = {layer.digest: diff for layer, diff in zip(layers, diffs, strict=False) if layer.media == LAYER}
        if diffs != [*image.layers] or len(layers) != len(diffs) or any(key != diff for key, diff in plain.items()):
            raise SparkopsError(f"{tag}: the received image has other layers than Docker reported")
        stored = self._add(tag, version, image.content, config, layers, settings)
        self._forget({blob.digest for blob in blobs.values()})
        return stored

    def _forget(self, digests: Iterable[str]) -> None:
        """Remove those of the received blobs that no image has: a store's own manifests."""
        used = {blob for image in self.readable() for blob in (image.digest, image.config.digest, *image.blobs)}
        for digest in {*digests} - used:
            self.path(digest).unlink(missing_ok=True)

    def _stored(self, name: str) -> Blob:
        """Return a layer that was not sent: its name is that of its digest. A damaged one is removed, to be sent."""
        match = NAMED_BY_DIGEST.fullmatch(name)
        digest = f"sha256:{match[1]}" if match else ""
        if not digest or not self.has(digest):
            raise _ended_early(f"layer {name} is missing")
        path = self.path(digest)
        try:
            with path.open("rb") as file:
                hashed, first = _Hashed(file), b""
                for piece in hashed.pieces():
                    first = first or piece[:4]
        except OSError as error:
            raise self._damaged(path, f"cannot be read: {error.strerror}") from None
        if hashed.digest != digest:
            path.unlink(missing_ok=True)
            raise _ended_early(f"the stored layer {name} was damaged and is removed")
        return Blob(digest, hashed.size, _media(first))

    def _store(self, file: IO[bytes]) -> Blob:
        """Store a file under its digest."""
        part = self._blobs() / f"{os.getpid()}{PART}"
        hashed = _Hashed(file)
        first = b""
        try:
            part.unlink(missing_ok=True)
            with part.open("xb") as out:  # no link leads to another file
                for piece in hashed.pieces():
                    first = first or piece[:4]
                    out.write(piece)
                out.flush()
                os.fsync(out.fileno())
            part.replace(self.path(hashed.digest))
        except OSError as error:
            raise self._unwritable(part, error) from None
        return Blob(hashed.digest, hashed.size, _media(first))

    def _add(
        self, tag: str, version: str, content: str, config: Blob, layers: Sequence[Blob], settings: Mapping[str, Any]
    ) -> StoredImage:
        kind = Blob(config.digest, config.size, "application/vnd.oci.image.config.v1+json")
        media = "application/vnd.oci.image.manifest.v1+json"
        manifest = {"schemaVersion": 2, "mediaType": media, "config": kind.descriptor}
        described = json.dumps({**manifest, "layers": [layer.descriptor for layer in layers]}).encode()
        blob = self._store(io.BytesIO(described))
        entry = {
            **Blob(blob.digest, blob.size, media).descriptor,
            "platform": {key: settings.get(key, "") for key in ("architecture", "os")},
            "annotations": {NAME: tag, CONTENT: content, VERSION: version},
        }
        others = [other for other in self._index() if (other.get("annotations") or {}).get(NAME) != tag]
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}
        self._write(MARK, {"imageLayoutVersion": "1.0.0"})
        self._write(INDEX, {**index, "manifests": [*others, entry]})
        return self._image(entry)

    def _write(self, name: str, content: Mapping[str, object]) -> None:
        part = self.directory / f"{name}{PART}"
        try:
            part.unlink(missing_ok=True)
            with part.open("x") as out:  # no link leads to another file
                json.dump(content, out, indent=1)
                out.flush()
                os.fsync(out.fileno())
            part.replace(self.directory / name)
        except OSError as error:
            raise self._unwritable(part, error) from None

    def _blobs(self) -> Path:
        return self.directory / "blobs" / "sha256"

    def _metadata(self, digest: str) -> Mapping[str, Any]:
        path = self.path(digest)
        return self._json(path, self._read(path))

    def _json(self, file: Path, content: bytes) -> Mapping[str, Any]:
        try:
            read = foreign.loads(content)
        except ValueError as error:
            raise self._damaged(file, f"is not JSON: {error}") from None
        if not isinstance(read, dict):
            raise self._damaged(file, "is not a JSON object")
        return read

    def _read(self, file: Path) -> bytes:
        try:
            with file.open("rb") as opened:
                content = opened.read(LARGEST_METADATA + 1)
        except OSError as error:
            raise self._damaged(file, f"cannot be read: {error.strerror}") from None
        if len(content) > LARGEST_METADATA:
            raise self._damaged(file, f"expected at most {LARGEST_METADATA} bytes")
        return content

    def _damaged(self, file: Path, problem: str) -> SparkopsError:
        step = "Remove this file and run `sparkops images export` again: it writes what is missing."
        return SparkopsError(f"{file}: {problem}", next_step=step)

    def _unwritable(self, file: Path, error: OSError) -> SparkopsError:
        steps = {
            errno.EFBIG: "Its file system, such as FAT32, holds no larger files. Use ext4 or exFAT.",
            errno.ENOSPC: "Free space, or name a directory on another disk. Then run the command again: it continues.",
        }
        step = steps.get(error.errno or 0, "Name a directory that you can write to.")
        return SparkopsError(f"{file} cannot be written: {error.strerror}", next_step=step)


def _ended_early(why: str) -> ImageCutOff:
    return ImageCutOff(f"the image ended early: {why}", next_step="Run the command again: it continues.")


def _media(first: bytes) -> str:
    return LAYER + next((suffix for magic, suffix in COMPRESSED.items() if first.startswith(magic)), "")


def _header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT)


def _member(name: str, content: bytes) -> Iterator[bytes]:
    yield _header(name, len(content))
    yield content + bytes(-len(content) % tarfile.BLOCKSIZE)
