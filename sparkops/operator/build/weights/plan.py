"""Compare model directories with a recipe, and plan copies between nodes. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from sparkops.command import quote
from sparkops.config.model import Weights
from sparkops.engines.runtime import USER
from sparkops.errors import NotReady
from sparkops.operator.build.weights.checkpoint import MARKER, Checkpoint, ModelDirectory, problems
from sparkops.units import shown_size

PARTIAL = ".partial"
SHORTEST_COMMIT = 7
NAMED = 4  # problems of one directory in a message


@dataclass(frozen=True)
class RequiredModel:
    """A required directory: its model and revision, or the digest of the steps that make it."""

    path: str
    model: str
    revision: str | None = None
    steps: str | None = None
    files: tuple[str, ...] = ()
    """The GGUF files that an engine loads from it; none for an engine that loads the directory."""


def fetched(weights: Weights) -> RequiredModel:
    return RequiredModel(weights.path, weights.id, weights.revision, files=tuple(weights.files))


def refused(model: RequiredModel, checkpoint: Checkpoint | None) -> Iterator[str]:
    """Yield the reasons why a directory is not the required model; none if it is."""
    if checkpoint is None:
        yield "not found"
        return
    yield from problems(checkpoint)
    if not model.files and checkpoint.gguf and "config.json" not in checkpoint.files:
        yield "no config.json: it has GGUF files, which the recipe's engine does not load"
    yield from (f"{name} is missing" for name in model.files if name not in checkpoint.files)
    if other := other_model(model, checkpoint):
        yield other


def closed(node: str, model_dir: str, directory: ModelDirectory) -> NotReady | None:
    """Return why a node's model directory takes no files; None if it does."""
    if directory.writable:
        return None
    what = "cannot be written to" if directory.exists else "does not exist"
    step = f"On {node}: {directory.creation(model_dir)}"
    return NotReady(node, f"the model directory {model_dir} {what}", next_step=step)


def unreadable(node: str, model_dir: str, checkpoint: Checkpoint | None) -> Iterator[NotReady]:
    """Yield the refusal of weights that the engine's user cannot read, such as files with mode 0600."""
    if checkpoint is None or not checkpoint.closed:
        return
    (first, mode), more = next(iter(checkpoint.closed.items())), len(checkpoint.closed) - 1
    files = f"{model_dir}/{first}" + (f" and {more} more" if more else "")
    problem = f"engines cannot read {files}: measured mode {mode:04o}, expected access for user {USER}"
    paths = quote("chmod", "a+rX", *(f"{model_dir}/{path}" for path in checkpoint.closed))
    yield NotReady(node, problem, next_step=f"On {node}: sudo {paths}")


def other_model(model: RequiredModel, checkpoint: Checkpoint) -> str:
    """Return the known difference of a directory from the required model, as text; empty without one."""
    origin = checkpoint.origin
    if model.steps and (origin is None or origin.steps != model.steps):
        other = "it was made by other steps than the recipe's"
        return other if origin else "it has no record of the recipe's steps"
    if not model.steps and origin and origin.steps:
        return "it was made by steps, and the recipe has none"
    if origin and origin.model != model.model:
        return f"it is {origin.model}, the recipe needs {model.model}"
    if not model.steps and model.revision and _other_revision(model.revision, checkpoint):
        return f"it is revision {checkpoint.commit}, the recipe needs {model.revision}"
    return ""


def may_be_in_use(model: RequiredModel, checkpoint: Checkpoint | None) -> str:
    """Return the difference of another complete model, which a release may use; empty if it may be replaced."""
    return other_model(model, checkpoint) if checkpoint and checkpoint.complete else ""


def _other_revision(revision: str, checkpoint: Checkpoint) -> bool:
    """Return whether it is known to be another revision. A manual copy has no record."""
    if checkpoint.origin and checkpoint.origin.revision == revision:
        return False
    prefix = len(revision) >= SHORTEST_COMMIT and checkpoint.commit and checkpoint.commit.startswith(revision)
    return bool(checkpoint.commit) and not prefix


def in_words(reasons: Iterator[str]) -> str:
    """Return the first few reasons in one line; empty for none."""
    listed = list(islice(reasons, NAMED + 1))
    return "; ".join(listed[:NAMED] + ["and more"] * (len(listed) > NAMED))


@dataclass(frozen=True)
class Copy:
    """The plan to copy one directory from a node to another.

    `files` are (name, size in bytes, bytes already present, time of change in ns); `keep` are files of the target's own
    directory that stay. `identity` is the same only for exactly the same content.
    """

    path: str
    identity: str
    files: tuple[tuple[str, int, int, int], ...]
    keep: tuple[str, ...] = ()
    fresh: bool = True
    """Whether the target has no such directory yet."""
    replaced: tuple[str, ...] = ()
    """Files with another content on the target."""

    @property
    def sent(self) -> int:
        """Bytes to send."""
        return sum(size - present for _, size, present, _ in self.files)

    @property
    def nothing(self) -> bool:
        """Whether the target is up to date."""
        return not self.files and not self.fresh


Hashes = Mapping[str, str]
"""The sha256 of files by name."""


def comparable(source: Checkpoint, target: Checkpoint | None) -> list[str]:
    """Return files with the same name and size on both; none if the models are known to differ."""
    if target is None or _known_to_differ(source, target):
        return []
    present = target.files
    return [name for name, (size, _) in source.files.items() if name in present and present[name][0] == size]


def plan_copy(
    source: Checkpoint,
    target: Checkpoint | None,
    partial: Checkpoint | None,
    hashes: tuple[Hashes, Hashes] | None = None,
) -> Copy:
    """Plan the copy of `source` to `target`, resumed from `partial`, the directory of an interrupted copy.

    Files are equal if name and size are, and with `hashes` (of source and target) also their sha256. Without `hashes`,
    none is equal that the copy would give a record of another origin.
    """
    contents = json.dumps(sorted([name, *facts] for name, facts in source.files.items()))
    identity = (
        f"copy {hashlib.sha256(contents.encode()).hexdigest()}"  # over names, sizes and times, which a copy preserves
    )
    alike = comparable(source, target)
    if hashes is None:
        same = set(alike if recorded_alike(source, target) else ())
    else:
        same = {name for name in alike if hashes[0].get(name) == hashes[1].get(name)}
    started = partial.files if partial and partial.identity == identity else {}
    doubted = set(alike) - same  # for these the file in `partial` may come from the target itself
    files = [
        (name, size, 0 if name in doubted else started.get(name, (0, 0))[0], changed_ns)
        for name, (size, changed_ns) in source.files.items()
        if name not in same
    ]
    coming, present = {name for name, *_ in files}, set(target.files if target else ())
    other = target is not None and _known_to_differ(source, target)
    stale = {MARKER} - source.files.keys() if coming else set()  # a record of files that are replaced
    return Copy(
        path=source.path,
        identity=identity,
        files=tuple(files),
        # An index of another model would name its own shards.
        keep=() if other else tuple(sorted(present - coming - stale)),
        fresh=target is None,
        replaced=tuple(sorted(present & coming)),
    )


def recorded_alike(source: Checkpoint, target: Checkpoint | None) -> bool:
    """Return whether the target has the record that a copy would give it, or gets none.

    Two fine-tunes of one model have files of the same names and sizes: without a record, those prove nothing.
    """
    if target is None or _known_to_differ(source, target):
        return False
    if source.origin is None or (source.commit and source.commit == target.commit):
        return True
    return target.origin is not None and source.commit == target.commit


def _known_to_differ(source: Checkpoint, target: Checkpoint) -> bool:
    """Return whether two directories are known to be other models, or other commits, also by the hub's own record."""
    first, second = source.origin, target.origin
    commits = {source.commit, target.commit} - {None}
    if first is None or second is None:
        return len(commits) > 1
    return (first.model, first.steps) != (second.model, second.steps) or len(commits) > 1


def enough_room(free: int, needed: float) -> str:
    """Return the missing disk space as text; empty if it is enough. Both in bytes."""
    if free >= needed:
        return ""
    return f"{shown_size(free)} free, {shown_size(needed)} needed: {shown_size(needed - free)} short"


def disagreements(checkpoints: Mapping[str, Checkpoint]) -> Iterator[str]:
    """Yield files of one checkpoint whose size differs between nodes. A file that a node lacks is ignored."""
    names = sorted({name for checkpoint in checkpoints.values() for name in checkpoint.files} - {MARKER})
    for name in names:
        having = {node: checkpoint.files for node, checkpoint in checkpoints.items() if name in checkpoint.files}
        sizes = {node: files[name][0] for node, files in having.items()}
        if len(set(sizes.values())) > 1:
            measured = ", ".join(f"{size} bytes on {node}" for node, size in sizes.items())
            yield f"{name} differs between nodes: {measured}"
