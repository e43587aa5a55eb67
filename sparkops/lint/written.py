"""List the files that a stage writes, with their contents if the text has them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sparkops.lint.calls import Call
from sparkops.lint.shell import HEREDOCS
from sparkops.lint.stages import BuildStage, BuildStep
from sparkops.lint.text import expand

READERS = frozenset({"uv", "uvx", "pip", "pip3", "rm", "cat", "echo", "printf", "test", "["})
WRITES = frozenset({">", ">>", ">|"})


@dataclass(frozen=True)
class WrittenFiles:
    """Contents by path; None: unknown. `copied`: paths from elsewhere. `named`: arguments of programs."""

    contents: dict[str, str | None]
    copied: tuple[str, ...]
    named: frozenset[str]

    def has(self, path: str) -> bool:
        """Return whether this stage or its parents may create the file."""
        if path in self.contents or any(path == target or path.startswith(f"{target}/") for target in self.copied):
            return True
        return any(word.endswith(posixpath.basename(path)) for word in self.named)


def files(stage: BuildStage) -> WrittenFiles:
    """Return the files that the stage and its parents write."""
    contents: dict[str, str | None] = {}
    copied: list[str] = []
    named: set[str] = set()
    for step in (step for ancestor in stage.lineage for step in ancestor.steps):
        copied += _copied(step)
        contents |= _heredocs(step)
        for call in step.calls:
            _write(call, contents)
            named |= set(call.argv[1:]) if call.program not in READERS else set()
    return WrittenFiles(contents, tuple(copied), frozenset(named))


def located(directory: str, path: str) -> str:
    """Return the absolute path; empty for the root, so that every path starts with it and a slash."""
    absolute = posixpath.normpath(posixpath.join("/", directory, path))
    return "" if absolute == "/" else absolute


def mounted(step: BuildStep) -> Iterator[str]:
    """Yield the targets of the mounts of a RUN. No layer contains them."""
    for _, value in (flag for flag in step.instruction.flags if flag[0] == "mount"):
        settings = dict(part.partition("=")[::2] for part in value.split(","))
        if target := settings.get("target") or settings.get("dst") or settings.get("destination"):
            yield located(step.directory, target)


def _copied(step: BuildStep) -> Iterator[str]:
    """Yield the targets of COPY, ADD and mounts."""
    yield from mounted(step)
    if step.instruction.keyword in ("COPY", "ADD") and (paths := step.instruction.paths):
        yield located(step.directory, expand(paths[-1], step.values))


def _heredocs(step: BuildStep) -> Iterator[tuple[str, str | None]]:
    """Yield path and text of the file of `COPY <<EOF /path`."""
    instruction = step.instruction
    if instruction.keyword in ("COPY", "ADD") and len(instruction.heredocs) == 1:
        [heredoc] = instruction.heredocs
        target = expand(instruction.rest.text.split()[-1], step.values)
        text = heredoc.body.text
        yield located(step.directory, target), text if heredoc.quoted else expand(text, step.values)


def _write(call: Call, contents: dict[str, str | None]) -> None:
    text = _output(call)
    for target, appends in _targets(call):
        path = located(call.directory, target)
        earlier = contents.get(path, "") if appends else ""
        contents[path] = earlier or None if text is None else f"{earlier or ''}{text}\n"


def _targets(call: Call) -> Iterable[tuple[str, bool]]:
    """Return the files that a call writes, and whether it appends to them."""
    if call.program == "tee":
        appends = "-a" in call.argv or "--append" in call.argv
        return [(word, appends) for word in call.argv[1:] if not word.startswith("-")]
    writes = (redirect for redirect in call.redirects if redirect.operator in WRITES)
    return [(redirect.target, redirect.operator == ">>") for redirect in writes]


def _output(call: Call) -> str | None:
    """Return the output of a call; None if it is unknown."""
    if heredocs := [redirect.body for redirect in call.redirects if redirect.operator in HEREDOCS]:
        return heredocs[-1] if call.program in ("cat", "tee") else None
    if call.program in ("echo", "printf"):
        return "\n".join(call.argv[1:])
    if call.program == "tee" and call.before:
        return _output(call.before[-1])
    return None
