"""Parse the output of templates/node/store.py: the checkpoints in a node's model directory, and their problems."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkops import foreign
from sparkops.command import quote
from sparkops.config.model import GGUF, parts
from sparkops.node.program import parsed

WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".pth")
MARKER = ".sparkops.json"
"""File with the origin of a directory, written by sparkops and copied with the weights."""
NUMBERED = re.compile(r"[0-9]{1,9}(?=-of-[0-9]{1,9}\.safetensors$)")
"""The number of a shard, as in model-00002-of-00014.safetensors."""
UNFINISHED = {
    ".partial": "incomplete; repeat the command to resume",
    ".replaced": "left over from an interrupted replacement",
}


@dataclass(frozen=True)
class Shard:
    """A safetensors file. `expected` is its length in bytes by the header, `error` the problem of an invalid header."""

    size: int
    expected: int | None = None
    error: str = ""


@dataclass(frozen=True)
class Disagreement:
    """Tensors of one shard that only the index or only the header has: their count, and the first few."""

    shard: str
    count: int
    first: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        return ", ".join(self.first) + more


@dataclass(frozen=True)
class Index:
    """An index compared with the shards. `absent` are only in the index, `unnamed` only in shards."""

    file: str
    shards: frozenset[str] = frozenset()
    absent: tuple[Disagreement, ...] = ()
    unnamed: tuple[Disagreement, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Origin:
    """The recorded origin of a directory: the model, its requested revision and commit, or the digest of its steps."""

    model: str
    revision: str | None = None
    commit: str | None = None
    steps: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """One directory. `files` has size in bytes and time of change in ns; `noted` the sizes in the marker.

    `identity` identifies the content of a partial directory. `commit` may also be recorded by the hub's own program.
    """

    path: str
    files: Mapping[str, tuple[int, int]]
    shards: Mapping[str, Shard]
    index: Index | None = None
    origin: Origin | None = None
    noted: Mapping[str, int] | None = None
    commit: str | None = None
    identity: str | None = None
    closed: Mapping[str, int] = field(default_factory=dict)
    """Modes of files and directories that only their owner or group can read, by path under the model directory."""
    place: str = ""
    """The directory without symbolic links."""
    id: tuple[int, int] | None = None
    """Inode and time of the last change in ns of the directory: equal on nodes that share it, not on others."""

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(size for size, _ in self.files.values())

    @property
    def gguf(self) -> bool:
        """Whether its weights are GGUF files only, which contain their configuration."""
        weights = [name for name in self.files if name.endswith(WEIGHTS)]
        return bool(weights) and all(name.endswith(GGUF) for name in weights)

    @property
    def complete(self) -> bool:
        return not any(problems(self))


@dataclass(frozen=True)
class ModelDirectory:
    """A node's `model_dir` and the checkpoints in it. `user` and `group` are the numbers of the SSH user."""

    exists: bool
    writable: bool
    free: int
    user: int
    group: int
    checkpoints: Mapping[str, Checkpoint]

    def creation(self, where: str) -> str:
        """Return the command that creates the directory at this path for the SSH user."""
        return f"sudo install -d -o {self.user} -g {self.group} {quote(where)}"


def parse(text: str) -> ModelDirectory:
    """Parse the output of `look`. Raises ValueError for other text."""
    try:
        listing = foreign.loads(text)
        root = listing["root"]
        models = [_checkpoint(model) for model in listing["models"]]
        user, group = root["user"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"unexpected description of a model directory: {text[:200]!r}") from error
    checkpoints = {model.path: model for model in models}
    return ModelDirectory(root["there"], root["writable"], root["free"], user, group, checkpoints)


def _checkpoint(listed: Mapping[str, Any]) -> Checkpoint:
    marker = listed["marker"] or {}
    if any(name.startswith("/") or ".." in name.split("/") for name in listed["files"]):
        raise ValueError("a file outside its directory")
    return Checkpoint(
        path=listed["path"],
        files={name: (size, changed_ns) for name, (size, changed_ns) in listed["files"].items()},
        shards={
            name: Shard(listed["files"][name][0], shard.get("bytes"), shard.get("error", ""))
            for name, shard in listed["shards"].items()
        },
        index=_index(listed["index"]),
        origin=(
            Origin(marker["model"], marker.get("asked"), marker.get("commit"), marker.get("made"))
            if "model" in marker
            else None
        ),
        noted=marker.get("files"),
        commit=marker.get("commit") or listed["revision"],
        identity=listed["identity"],
        closed=listed["closed"],
        place=listed["place"],
        id=(listed["id"][0], listed["id"][1]),
    )


def _index(index: Mapping[str, Any] | None) -> Index | None:
    if index is None:
        return None
    if "error" in index:
        return Index(index["file"], error=index["error"])

    def disagreements(key: str) -> tuple[Disagreement, ...]:
        return tuple(
            Disagreement(shard, tensors["count"], tuple(tensors["first"])) for shard, tensors in index[key].items()
        )

    return Index(index["file"], frozenset(index["shards"]), disagreements("absent"), disagreements("unnamed"))


def hashes(text: str) -> Mapping[str, str]:
    """Parse the output of `hash`: the sha256 of files by name. Raises ValueError for other text."""
    digests = foreign.loads((text.splitlines() or [""])[-1])
    if not isinstance(digests, dict) or not all(isinstance(digest, str) for digest in digests.values()):
        raise ValueError(f"unexpected digests of files: {text[-200:]!r}")
    return digests


def bytes_read(line: str) -> int | None:
    """Return the number of hashed bytes; None for the last line."""
    reply = parsed(line)
    count = reply.get("bytes") if isinstance(reply, dict) else None
    return count if isinstance(count, int) else None


def problems(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield the reasons why an engine cannot load it; none for a complete checkpoint."""
    for suffix, why in UNFINISHED.items():
        if checkpoint.path.endswith(suffix):
            yield why
            return
    if "config.json" not in checkpoint.files and not checkpoint.gguf:
        yield "no config.json"
    if not any(name.endswith(WEIGHTS) for name in checkpoint.files):
        yield "no weights"
    yield from _damaged(checkpoint)
    if checkpoint.index:
        yield from _incomplete(checkpoint, checkpoint.index)
    yield from _without_parts(checkpoint)
    yield from _changed(checkpoint)


def _damaged(checkpoint: Checkpoint) -> Iterator[str]:
    for name, shard in checkpoint.shards.items():
        if shard.error:
            yield f"{name}: {shard.error}"
        elif shard.expected is not None and shard.size < shard.expected:
            yield f"{name} is truncated: {shard.size} of {shard.expected} bytes"
        elif shard.expected is not None and shard.size > shard.expected:
            yield f"{name} has {shard.size} bytes, expected {shard.expected} by its header"


def _incomplete(checkpoint: Checkpoint, index: Index) -> Iterator[str]:
    if index.error:
        yield f"{index.file}: {index.error}"
    for name in sorted(index.shards - checkpoint.files.keys()):
        yield f"{name} is missing, but listed in {index.file}"
    for tensor in index.absent:
        yield f"{tensor.shard} lacks tensors of {index.file}: {tensor}"
    for tensor in index.unnamed:
        yield f"{index.file} lacks tensors of {tensor.shard}: {tensor}"
    families = {NUMBERED.sub("", name) for name in index.shards if NUMBERED.search(name)}
    for name in overlooked(checkpoint):
        if NUMBERED.search(name) and NUMBERED.sub("", name) in families:
            yield f"{index.file} lacks all tensors of {name}"


def _without_parts(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield each missing part of a GGUF file in several parts."""
    required = {part for name in checkpoint.files if name.endswith(GGUF) for part in parts(name)}
    yield from (f"{name} is missing: another part of it exists" for name in sorted(required - checkpoint.files.keys()))


def _changed(checkpoint: Checkpoint) -> Iterator[str]:
    """Compare files with the sizes in the marker."""
    for name, size in sorted((checkpoint.noted or {}).items()):
        if name not in checkpoint.files:
            yield f"{name} is missing; it existed when the directory was created"
        elif name not in checkpoint.shards and checkpoint.files[name][0] != size:
            yield f"{name} has {checkpoint.files[name][0]} bytes, expected {size}"


def overlooked(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return shards that the index does not list; an engine that uses the index skips them."""
    if checkpoint.index is None or checkpoint.index.error:
        return ()
    return tuple(sorted(checkpoint.shards.keys() - checkpoint.index.shards))
