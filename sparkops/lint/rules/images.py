"""Images are named so that tomorrow's build begins where today's did."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from sparkops.lint.finding import Found
from sparkops.lint.stages import BuildStage, StagedBuild
from sparkops.lint.words import expand

MOVING = frozenset({"latest", "nightly"})
ROLLING = frozenset(
    {"canary", "current", "develop", "edge", "head", "lts", "main", "master", "next", "rolling", "sid", "stable"}
    | {"testing", "trunk", "unstable", "dev"}
)
"""Words of a tag that moves, unless it also has a number."""
SMALL = frozenset({"alpine", "slim"})
"""Words that name a kind of an image, and by themselves its newest version."""
COMMIT = re.compile(r"[0-9a-f]{7,40}")


def check(build: StagedBuild) -> Iterator[Found]:
    """Each image of FROM, of COPY --from and of RUN --mount=from that may be another one tomorrow."""
    names = {stage.name for stage in build.stages}
    for stage in build.stages:
        if not stage.parent and (problem := moving(stage.image)):
            yield Found(stage.line, problem, f"FROM {_untagged(stage.image)}:VERSION, or @sha256:DIGEST")
        for line, image in _borrowed(build, stage, names):
            # A bare name may be a context that the build is given by name.
            if ("/" in image or ":" in image) and (problem := moving(image)):
                yield Found(line, problem, f"from={_untagged(image)}:VERSION, or @sha256:DIGEST")


def moving(image: str) -> str:
    """Why the image may be another one tomorrow; empty if it stays, or if nobody can tell."""
    if "@sha256:" in image or "$" in image or image in ("", "scratch"):
        return ""
    tag = image.removeprefix(_untagged(image)).removeprefix(":")
    if not tag:
        return f"the image {image} has no tag, so it is whatever `latest` is today, expected a version or a digest"
    parts = set(re.split(r"[-_.]", tag))
    rolls = parts <= SMALL or (ROLLING & parts and not re.search(r"[0-9]", tag))
    if (MOVING & parts or rolls) and not any(map(COMMIT.fullmatch, parts)):
        return f"the tag of {image} moves, expected a version or a digest"
    return ""


def _untagged(image: str) -> str:
    path, slash, name = image.rpartition("/")
    return path + slash + name.partition(":")[0]


def _borrowed(build: StagedBuild, stage: BuildStage, names: Collection[str]) -> Iterator[tuple[int, str]]:
    for step in stage.steps:
        for flag, value in step.instruction.flags:
            match = re.search(r"(?:^|,)from=([^,]+)", value) if flag == "mount" else None
            image = expand(match[1] if match else value if flag == "from" else "", {**build.arguments, **step.values})
            if image and image.lower() not in names:
                yield step.instruction.line, image
