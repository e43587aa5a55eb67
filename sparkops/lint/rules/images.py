"""Check that images have a version or digest, so that every build uses the same one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from sparkops.lint.finding import Violation
from sparkops.lint.stages import BuildStage, StagedBuild
from sparkops.lint.text import expand

MOVING = frozenset({"latest", "nightly"})
ROLLING = frozenset(
    {"canary", "current", "develop", "edge", "head", "lts", "main", "master", "next", "rolling", "sid", "stable"}
    | {"testing", "trunk", "unstable", "dev"}
)
"""Words of a moving tag without a number."""
SMALL = frozenset({"alpine", "slim"})
"""Variants of an image; alone such a tag means the newest version."""
COMMIT = re.compile(r"[0-9a-f]{7,40}")


def check(build: StagedBuild) -> Iterator[Violation]:
    """Yield each image of FROM, COPY --from and RUN --mount=from whose tag can move."""
    names = {stage.name for stage in build.stages}
    for stage in build.stages:
        if not stage.parent and (problem := _moving(stage.image)):
            yield Violation(stage.line, problem, f"FROM {_untagged(stage.image)}:VERSION, or @sha256:DIGEST")
        for line, image in _borrowed(build, stage, names):
            # A bare name may be a named build context.
            if ("/" in image or ":" in image) and (problem := _moving(image)):
                yield Violation(line, problem, f"from={_untagged(image)}:VERSION, or @sha256:DIGEST")


def _moving(image: str) -> str:
    """Return why the name can move to another image; empty if it cannot, or if unknown."""
    if "@sha256:" in image or "$" in image or image in ("", "scratch"):
        return ""
    tag = image.removeprefix(_untagged(image)).removeprefix(":")
    if not tag:
        return f"image {image} has no tag and means `latest`, expected a version or a digest"
    parts = set(re.split(r"[-_.]", tag))
    rolls = parts <= SMALL or (ROLLING & parts and not re.search(r"[0-9]", tag))
    if (MOVING & parts or rolls) and not any(map(COMMIT.fullmatch, parts)):
        return f"the tag of {image} can move, expected a version or a digest"
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
