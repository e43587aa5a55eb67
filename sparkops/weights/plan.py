"""What a recipe wants of a node's model directory, and what has to be done for it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from sparkops.command import quote
from sparkops.config.model import Weights
from sparkops.engine.runtime import USER
from sparkops.errors import NotReady
from sparkops.nodes.progress import GB
from sparkops.weights.checkpoint import MARKER, Checkpoint, problems

PARTIAL = ".partial"
SHORTEST_COMMIT = 7
NAMED = 4  # problems of one directory that are said at once


@dataclass(frozen=True)
class WantedModel:
    """A directory that must be there: which model, of which commit, or made by which steps."""

    path: str
    model: str
    revision: str | None = None
    made: str | None = None


def fetched(weights: Weights) -> WantedModel:
    """What comes from a hub."""
    return WantedModel(weights.path, weights.id, weights.revision)


def refused(wanted: WantedModel, checkpoint: Checkpoint | None) -> Iterator[str]:
    """Why a directory is not what is wanted; nothing where it is."""
    if checkpoint is None:
        yield "it is not there"
        return
    yield from problems(checkpoint)
    if stranger := another(wanted, checkpoint):
        yield stranger


def unreadable(node: str, model_dir: str, checkpoint: Checkpoint | None) -> Iterator[NotReady]:
    """Yield the refusal of weights that the engine's user cannot read: some programs save weights with mode 0600."""
    if checkpoint is None or not checkpoint.closed:
        return
    (first, mode), more = next(iter(checkpoint.closed.items())), len(checkpoint.closed) - 1
    what = f"{model_dir}/{first}" + (f" and {more} more" if more else "")
    problem = f"engines cannot read {what}: measured mode {mode:04o}, expected access for user {USER}"
    paths = quote("chmod", "a+rX", *(f"{model_dir}/{path}" for path in checkpoint.closed))
    yield NotReady(node, problem, next_step=f"On {node}: sudo {paths}")


def another(wanted: WantedModel, checkpoint: Checkpoint) -> str:
    """What a directory is known to hold instead of what is wanted, in words; no text where nothing tells."""
    origin = checkpoint.origin
    if wanted.made and (origin is None or origin.made != wanted.made):
        other = "it was made by other steps than the recipe's"
        return other if origin else "nothing tells that the recipe's steps made it"
    if not wanted.made and origin and origin.made:
        return "it was made by steps, and the recipe has none"
    if origin and origin.model != wanted.model:
        return f"it holds {origin.model}"
    if not wanted.made and wanted.revision and _other(wanted.revision, checkpoint):
        return f"it is revision {checkpoint.commit}, and the recipe asks for {wanted.revision}"
    return ""


def may_be_in_use(wanted: WantedModel, checkpoint: Checkpoint | None) -> str:
    """What would be lost if the directory were replaced, in words: another model, whole, that a release may read."""
    return another(wanted, checkpoint) if checkpoint and checkpoint.complete else ""


def _other(revision: str, checkpoint: Checkpoint) -> bool:
    """Return whether it is known to be another revision. A copy made by hand states none."""
    if checkpoint.origin and checkpoint.origin.asked == revision:
        return False
    prefix = len(revision) >= SHORTEST_COMMIT and checkpoint.commit and checkpoint.commit.startswith(revision)
    return bool(checkpoint.commit) and not prefix


def in_words(reasons: Iterator[str]) -> str:
    """The first few reasons in one line; no text for none."""
    listed = list(islice(reasons, NAMED + 1))
    return "; ".join(listed[:NAMED] + ["and more"] * (len(listed) > NAMED))


@dataclass(frozen=True)
class Copy:
    """What brings one directory from a node to another.

    `files` are (name, size in bytes, bytes that are there already, time of change in ns); `keep` are files of the
    target's own directory that stay. `identity` is the same only for the very same content.
    """

    path: str
    identity: str
    files: tuple[tuple[str, int, int, int], ...]
    keep: tuple[str, ...] = ()
    fresh: bool = True
    """Whether the target has no directory of that name yet."""

    replaced: tuple[str, ...] = ()
    """Files that the target has with another content."""

    @property
    def sent(self) -> int:
        """Bytes that go over the network."""
        return sum(size - present for _, size, present, _ in self.files)

    @property
    def nothing(self) -> bool:
        """Whether the target has all of it."""
        return not self.files and not self.fresh


Hashes = Mapping[str, str]
"""The sha256 of files by name."""


def comparable(source: Checkpoint, target: Checkpoint | None) -> list[str]:
    """The files that may be the same on both: name and size are. Nothing where the two are known to differ."""
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
    """What `target` lacks of `source`, with what an interrupted copy has left in `partial`.

    Files are the same if name and size are, and with `hashes` (of the source, of the target) their sha256 as well.
    """
    identity = _identity(source)
    alike = comparable(source, target)
    same = {name for name in alike if hashes is None or hashes[0].get(name) == hashes[1].get(name)}
    begun = partial.files if partial and partial.identity == identity else {}
    doubted = set(alike) - same  # of these, what lies in `partial` may be the target's own
    files = [
        (name, size, 0 if name in doubted else begun.get(name, (0, 0))[0], changed_ns)
        for name, (size, changed_ns) in source.files.items()
        if name not in same
    ]
    coming, present = {name for name, *_ in files}, set(target.files if target else ())
    return Copy(
        path=source.path,
        identity=identity,
        files=tuple(files),
        keep=tuple(sorted(present - coming)),
        fresh=target is None,
        replaced=tuple(sorted(present & coming)),
    )


def _known_to_differ(source: Checkpoint, target: Checkpoint) -> bool:
    ours, theirs = source.origin, target.origin
    if ours is None or theirs is None:
        return False
    commits = {ours.commit, theirs.commit} - {None}
    return (ours.model, ours.made) != (theirs.model, theirs.made) or len(commits) > 1


def _identity(source: Checkpoint) -> str:
    """What is being copied: names, sizes and times, which a copy keeps. A half copy of anything else is of no use."""
    text = json.dumps(sorted([name, *facts] for name, facts in source.files.items()))
    return f"copy {hashlib.sha256(text.encode()).hexdigest()}"


def enough_room(free: int, needed: float) -> str:
    """What is wrong with the room on a disk, in words; no text if it is enough. Both in bytes."""
    if free >= needed:
        return ""
    return f"{free / GB:.1f} GB free, {needed / GB:.1f} GB needed: {(needed - free) / GB:.1f} GB short"


def disagreements(checkpoints: Mapping[str, Checkpoint]) -> Iterator[str]:
    """Files of one checkpoint that are not of one size on all nodes. What only some nodes have does not count."""
    names = sorted({name for checkpoint in checkpoints.values() for name in checkpoint.files} - {MARKER})
    for name in names:
        sizes = {
            node: checkpoint.files[name][0] for node, checkpoint in checkpoints.items() if name in checkpoint.files
        }
        if len(set(sizes.values())) > 1:
            measured = ", ".join(f"{size} bytes on {node}" for node, size in sizes.items())
            yield f"{name} is not the same on all nodes: {measured}"
