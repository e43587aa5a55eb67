"""Parse BuildKit's plain progress: running step, number of steps, failures."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from sparkops import foreign

# With ten or more steps the numbers are padded: [runner  2/10].
STEP = re.compile(r"#(?P<id>\d+) \[(?:(?P<stage>[\w.-]+) )? *(?P<at>\d+)/(?P<of>\d+)\] (?P<what>.+)")
SENDING = re.compile(r"#(?P<id>\d+) \[internal\] load (remote )?build context")
ENDED = re.compile(r"#(?P<id>\d+) (?P<how>DONE|CACHED|ERROR|CANCELED)(?: (?P<seconds>[\d.]+)s)?")
OUTPUT = re.compile(r"#(?P<id>\d+) [\d.]+ (?P<text>.*)")
DISK_FULL = re.compile(r"no space left on device|ENOSPC|disk quota exceeded", re.IGNORECASE)
ALL = "exporting to image"
KEEP_LINES = 20


@dataclass(frozen=True)
class BuildProgress:
    """Progress of a build. `step` is text such as `runner 3/9: RUN uv pip install`."""

    steps: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()
    step: str = ""
    failed: str = ""
    tail: tuple[str, ...] = ()
    disk_full: bool = False

    @property
    def completed(self) -> int:
        return len(self.ended & set(self.steps))

    @property
    def total(self) -> int:
        """Steps of all started stages."""
        return sum(self.sizes.values())


def advance(progress: BuildProgress, line: str) -> BuildProgress:
    """Return the progress after one more line."""
    if DISK_FULL.search(line):
        progress = replace(progress, disk_full=True)
    if match := STEP.fullmatch(line):
        instruction = re.sub(r"\s+", " ", re.sub(r"--mount=\S+ ?", "", match["what"]))[:100]  # mounts are long
        name = f"{match['stage'] or 'image'} {match['at']}/{match['of']}: {instruction}"
        sizes = {**progress.sizes, match["stage"] or "": int(match["of"])}
        return replace(progress, steps={**progress.steps, match["id"]: name}, sizes=sizes, step=name)
    if SENDING.fullmatch(line):
        return replace(progress, step="sending the build context")
    if line.endswith(ALL):
        return replace(progress, step=ALL)
    if match := ENDED.match(line):
        failed = progress.steps.get(match["id"], "") if match["how"] == "ERROR" else progress.failed
        return replace(progress, ended=progress.ended | {match["id"]}, failed=failed)
    if match := OUTPUT.fullmatch(line):
        drawn = match["text"].rstrip("\r").rpartition("\r")[2]  # the last state of a redrawn line
        return replace(progress, tail=(*progress.tail, drawn)[-KEEP_LINES:])
    return progress


def platforms(manifest: str) -> list[str]:
    """Return the architectures in a registry's list of manifests, such as arm64. Raises ValueError for other text.

    Entries without a platform are attestations of the builder.
    """
    try:
        listed = [entry["platform"] for entry in foreign.loads(manifest)["manifests"]]
        names = {"/".join(filter(None, (item["architecture"], item.get("variant")))) for item in listed}
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"expected a list of manifests, got {manifest[:120]!r}") from error
    return sorted(names - {"unknown"})
