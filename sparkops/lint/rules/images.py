"""Images are named so that tomorrow's build begins where today's did."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkops.lint.finding import Found
from sparkops.lint.stages import Build, Stage
from sparkops.lint.words import expand

MOVING = frozenset({"latest", "nightly"})
COMMIT = re.compile(r"[0-9a-f]{7,40}")


def check(build: Build) -> Iterator[Found]:
    """Each image of FROM, of COPY --from and of RUN --mount=from that may be another one tomorrow."""
    for stage in build.stages:
        if not stage.parent and (problem := moving(stage.image)):
            yield Found(stage.line, problem, f"FROM {_untagged(stage.image)}:VERSION, or @sha256:DIGEST")
        for line, image in _borrowed(build, stage):
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
    if MOVING & parts and not any(map(COMMIT.fullmatch, parts)):
        return f"the tag of {image} moves, expected a version or a digest"
    return ""


def _untagged(image: str) -> str:
    path, slash, name = image.rpartition("/")
    return path + slash + name.partition(":")[0]


def _borrowed(build: Build, stage: Stage) -> Iterator[tuple[int, str]]:
    known = {each.name for each in build.stages}
    for step in stage.steps:
        for flag, value in step.instruction.flags:
            found = re.search(r"(?:^|,)from=([^,]+)", value) if flag == "mount" else None
            image = expand(found[1] if found else value if flag == "from" else "", {**build.arguments, **step.values})
            if image and image.lower() not in known:
                yield step.instruction.line, image
