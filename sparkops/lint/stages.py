"""The stages of a Dockerfile: what each begins with, what holds at each of its instructions, what it calls."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from sparkops.lint.calls import SHELLS, Call, calls
from sparkops.lint.conditions import PREDEFINED
from sparkops.lint.dockerfile import Dockerfile, Instruction
from sparkops.lint.installs import Install, installs
from sparkops.lint.text import Text
from sparkops.lint.words import Values, expand, split


@dataclass(frozen=True)
class BuildStep:
    """An instruction with the variables and the directory that it begins with."""

    instruction: Instruction
    values: Values
    directory: str

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The programs that a RUN calls."""
        if self.instruction.keyword != "RUN":
            return ()
        if words := self.instruction.words:
            quoted = ("'" + word.replace("'", "'\\''") + "'" for word in words)
            script = Text.of_line(" ".join(("exec", *quoted)), self.instruction.line)
            return tuple(calls(script, self.values))
        return tuple(calls(_script(self.instruction), self.values))

    @cached_property
    def installs(self) -> tuple[Install, ...]:
        """What uv and pip do in it."""
        return tuple(installs(self.calls, self.directory))


@dataclass(frozen=True)
class BuildStage:
    """From one FROM to the next. `image` is what FROM names; `parent` is the stage of that name, if there is one.

    `values` and `directory` are what it ends with. A parent hands everything on, its ARG as well. An image hands on
    what is in it, and nothing of that is in this file. ONBUILD has a stage of its own: it runs where another build
    begins with this one.
    """

    name: str
    image: str
    line: int
    parent: BuildStage | None
    steps: tuple[BuildStep, ...]
    values: Values
    directory: str

    @cached_property
    def lineage(self) -> tuple[BuildStage, ...]:
        """The stages whose layers it has: the first one first, itself last."""
        found = [self]
        while found[-1].parent:
            found.append(found[-1].parent)
        return tuple(reversed(found))

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Every program that it calls itself."""
        return tuple(call for step in self.steps for call in step.calls)

    @cached_property
    def installs(self) -> tuple[Install, ...]:
        """What uv and pip do in it."""
        return tuple(install for step in self.steps for install in step.installs)

    @property
    def root(self) -> str:
        """The image at the very bottom."""
        return self.lineage[0].image


@dataclass(frozen=True)
class StagedBuild:
    """A Dockerfile with its stages. `arguments` stand before the first FROM: no RUN sees them by themselves."""

    dockerfile: Dockerfile
    stages: tuple[BuildStage, ...]
    arguments: Values


def build(dockerfile: Dockerfile) -> StagedBuild:
    """Follow the instructions from the first to the last."""
    arguments: dict[str, str | None] = {}
    stages: list[BuildStage] = []
    groups = _groups(dockerfile.instructions)
    for each in next(groups):
        if each.keyword == "ARG":
            arguments |= dict(_argument(each, dockerfile.escape, arguments, {}))
    for begin, *rest in groups:
        stages += _Walk(dockerfile.escape, arguments, stages).stage(begin, rest)
    return StagedBuild(dockerfile, tuple(stages), arguments)


def _groups(instructions: Iterable[Instruction]) -> Iterator[list[Instruction]]:
    """What stands before the first FROM, and then each FROM with what follows it."""
    group: list[Instruction] = []
    for each in instructions:
        if each.keyword == "FROM" and not each.onbuild:
            yield group
            group = []
        group.append(each)
    yield group


@dataclass
class _Walk:
    escape: str
    arguments: Values
    earlier: list[BuildStage]
    values: dict[str, str | None] = field(default_factory=dict)
    directory: str = "/"

    def stage(self, begin: Instruction, rest: list[Instruction]) -> Iterator[BuildStage]:
        """The stage that a FROM begins, and one for its ONBUILD."""
        image, _, name = (*begin.rest.text.split(), "", "", "")[:3]
        image = expand(image.strip("\"'"), self.arguments)
        parent = next((each for each in self.earlier if each.name == image.lower()), None)
        if parent:
            self.values |= parent.values
            self.directory = parent.directory
        steps = tuple(map(self._step, (each for each in rest if not each.onbuild)))
        name = name.lower() or str(len(self.earlier))
        stage = BuildStage(name, image, begin.line, parent, steps, dict(self.values), self.directory)
        yield stage
        if later := tuple(map(self._step, (each for each in rest if each.onbuild))):
            line = later[0].instruction.line
            yield BuildStage(f"{name} (ONBUILD)", name, line, stage, later, dict(self.values), self.directory)

    def _step(self, each: Instruction) -> BuildStep:
        step = BuildStep(each, dict(self.values), self.directory)
        if each.keyword == "ENV":
            self.values |= dict(variables(each, self.escape, self.values))
        elif each.keyword == "ARG":
            self.values |= dict(_argument(each, self.escape, self.values, self.arguments))
        elif each.keyword == "WORKDIR":
            self.directory = posixpath.join(self.directory, expand(each.rest.text.strip(), self.values))
        return step


def variables(each: Instruction, escape: str, values: Values) -> Iterator[tuple[str, str]]:
    """What an ENV or LABEL sets: `NAME=value ...`, or the old `NAME value`."""
    words = split(each.rest, escape)
    if words and "=" not in words[0].raw:
        name, *rest = each.rest.text.split(maxsplit=1)
        yield name, expand("".join(rest).strip(), values)
        return
    for word in words:
        name, sign, value = word.text(values).partition("=")
        if sign:
            yield name, value


def _argument(each: Instruction, escape: str, values: Values, arguments: Values) -> Iterator[tuple[str, str | None]]:
    """What an ARG sets. Without a default it takes that of the ARG before the first FROM, or leaves what is there."""
    for word in split(each.rest, escape):
        name, sign, value = word.text(values).partition("=")
        yield name, value if sign else values.get(name, arguments.get(name, PREDEFINED.get(name)))


def _script(run: Instruction) -> Text:
    """What the shell of a RUN reads. A heredoc alone is the script itself, unless it names another interpreter."""
    if not run.heredocs:
        return run.rest
    body = run.heredocs[0].body
    if len(run.heredocs) == 1 and len(run.rest.text.split()) == 1:
        return body if _for_a_shell(body.text) else Text.of_line("", run.line)
    parts = [part for each in run.heredocs for part in (each.body, Text.of_line(f"\n{each.name}\n", run.end))]
    return Text.chain(run.rest, Text.of_line("\n", run.line), *parts)


def _for_a_shell(script: str) -> bool:
    first, _, _ = script.partition("\n")
    return not first.startswith("#!") or any(posixpath.basename(word) in SHELLS for word in first[2:].split())
