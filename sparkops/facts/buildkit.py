"""BuildKit's plain progress: which step is running, how far the build is, what failed and why."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

# From ten steps on the numbers are padded: [runner  2/10].
STEP = re.compile(r"#(?P<id>\d+) \[(?:(?P<stage>[\w.-]+) )? *(?P<at>\d+)/(?P<of>\d+)\] (?P<what>.+)")
SENDING = re.compile(r"#(?P<id>\d+) \[internal\] load (remote )?build context")
ENDED = re.compile(r"#(?P<id>\d+) (?P<how>DONE|CACHED|ERROR|CANCELED)(?: (?P<seconds>[\d.]+)s)?")
OUTPUT = re.compile(r"#(?P<id>\d+) [\d.]+ (?P<text>.*)")
DISK_FULL = re.compile(r"no space left on device|ENOSPC|disk quota exceeded", re.IGNORECASE)
ALL = "exporting to image"
KEEP_LINES = 20


@dataclass(frozen=True)
class Progress:
    """How far a build is. `step` reads like `runner 3/9: RUN uv pip install`."""

    steps: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()
    step: str = ""
    failed: str = ""
    tail: tuple[str, ...] = ()
    disk_full: bool = False

    @property
    def done(self) -> int:
        """Steps that have ended."""
        return len(self.ended & set(self.steps))

    @property
    def total(self) -> int:
        """Steps of all stages that have begun."""
        return sum(self.sizes.values())


def advance(progress: Progress, line: str) -> Progress:
    """The progress after one more line."""
    if DISK_FULL.search(line):
        progress = replace(progress, disk_full=True)
    if found := STEP.fullmatch(line):
        name = f"{found['stage'] or 'image'} {found['at']}/{found['of']}: {_short(found['what'])}"
        sizes = {**progress.sizes, found["stage"] or "": int(found["of"])}
        return replace(progress, steps={**progress.steps, found["id"]: name}, sizes=sizes, step=name)
    if SENDING.fullmatch(line):
        return replace(progress, step="sending the build context")
    if line.endswith(ALL):
        return replace(progress, step=ALL)
    if found := ENDED.match(line):
        failed = progress.steps.get(found["id"], "") if found["how"] == "ERROR" else progress.failed
        return replace(progress, ended=progress.ended | {found["id"]}, failed=failed)
    if found := OUTPUT.fullmatch(line):
        drawn = found["text"].rstrip("\r").rpartition("\r")[2]  # of a line that was drawn again and again: the last
        return replace(progress, tail=(*progress.tail, drawn)[-KEEP_LINES:])
    return progress


def read(lines: Iterable[str]) -> Progress:
    """The progress after all of `lines`."""
    progress = Progress()
    for line in lines:
        progress = advance(progress, line)
    return progress


def _short(what: str) -> str:
    """A step's instruction without its mounts, which fill a line and say nothing new."""
    return re.sub(r"\s+", " ", re.sub(r"--mount=\S+ ", "", what))[:100]
