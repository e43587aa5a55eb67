"""The files that the instructions of a stage write: what is in them, as far as it can be read."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sparkops.lint.calls import Call
from sparkops.lint.shell import HEREDOCS
from sparkops.lint.stages import BuildStage, BuildStep
from sparkops.lint.words import expand

READERS = frozenset({"uv", "uvx", "pip", "pip3", "rm", "cat", "echo", "printf", "test", "["})
WRITES = frozenset({">", ">>", ">|"})


@dataclass(frozen=True)
class WrittenFiles:
    """`contents` by path; None: something is there.

    `brought` are directories or files that come from elsewhere, `named` is what other programs are told to work with.
    """

    contents: dict[str, str | None]
    brought: tuple[str, ...]
    named: frozenset[str]

    def has(self, path: str) -> bool:
        """Whether anything in this stage or in those that it begins with makes the file, or may make it."""
        known = path in self.contents or any(path == each or path.startswith(f"{each}/") for each in self.brought)
        return known or any(each.endswith(posixpath.basename(path)) for each in self.named)


def files(stage: BuildStage) -> WrittenFiles:
    """What the stage has, and what it has from the stages that it begins with."""
    contents: dict[str, str | None] = {}
    brought: list[str] = []
    named: set[str] = set()
    for step in (step for each in stage.lineage for step in each.steps):
        brought += _brought(step)
        contents |= _heredocs(step)
        for call in step.calls:
            _write(step, call, contents)
            named |= set(call.argv[1:]) if call.program not in READERS else set()
    return WrittenFiles(contents, tuple(brought), frozenset(named))


def located(directory: str, path: str) -> str:
    """The path from the root; empty for the root itself, so that everything begins with it and a slash."""
    whole = posixpath.normpath(posixpath.join("/", directory, path))
    return "" if whole == "/" else whole


def mounted(step: BuildStep) -> Iterator[str]:
    """Where a RUN has something mounted that is in no layer."""
    for _, value in (flag for flag in step.instruction.flags if flag[0] == "mount"):
        given = dict(part.partition("=")[::2] for part in value.split(","))
        target = given.get("target") or given.get("dst") or given.get("destination")
        if target:
            yield located(step.directory, target)


def _brought(step: BuildStep) -> Iterator[str]:
    """Where COPY and ADD put something, and where a mount shows it."""
    yield from mounted(step)
    instruction = step.instruction
    if instruction.keyword in ("COPY", "ADD") and (words := instruction.words or tuple(instruction.rest.text.split())):
        yield located(step.directory, expand(words[-1], step.values))


def _heredocs(step: BuildStep) -> Iterator[tuple[str, str | None]]:
    """`COPY <<EOF /path` is a file with a known text."""
    instruction = step.instruction
    if instruction.keyword in ("COPY", "ADD") and len(instruction.heredocs) == 1:
        body = instruction.heredocs[0]
        target = expand(instruction.rest.text.split()[-1], step.values)
        yield located(step.directory, target), body.body.text if body.quoted else expand(body.body.text, step.values)


def _write(step: BuildStep, call: Call, contents: dict[str, str | None]) -> None:
    text = _output(call)
    for target, adds in _targets(call):
        path = located(step.directory, target)
        earlier = contents.get(path, "") if adds else ""
        contents[path] = earlier or None if text is None else f"{earlier or ''}{text}\n"


def _targets(call: Call) -> Iterable[tuple[str, bool]]:
    """The files that a call writes, and whether it adds to them."""
    if call.program == "tee":
        adds = "-a" in call.argv or "--append" in call.argv
        return [(word, adds) for word in call.argv[1:] if not word.startswith("-")]
    return [(each.target, each.operator == ">>") for each in call.redirects if each.operator in WRITES]


def _output(call: Call) -> str | None:
    """What it prints, where that can be told."""
    if heredocs := [each.body for each in call.redirects if each.operator in HEREDOCS]:
        return heredocs[-1] if call.program in ("cat", "tee") else None
    if call.program in ("echo", "printf"):
        return "\n".join(call.argv[1:])
    if call.program == "tee" and call.before:
        return _output(call.before[-1])
    return None
