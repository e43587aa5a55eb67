"""Split a Dockerfile into stages, with variables, directory and program calls of each instruction."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from sparkops.lint.calls import SHELLS, Call, calls
from sparkops.lint.dockerfile import Dockerfile, Instruction
from sparkops.lint.installs import Install, installs
from sparkops.lint.text import Text, Values, expand, split

PREDEFINED = {"TARGETARCH": "arm64", "TARGETOS": "linux", "TARGETPLATFORM": "linux/arm64", "TARGETVARIANT": ""}
"""Arguments that BuildKit sets for a Spark: in each FROM, and in a stage whose ARG declares them."""


@dataclass(frozen=True)
class BuildStep:
    """An instruction with the variables and the directory before it."""

    instruction: Instruction
    values: Values
    directory: str

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The program calls of a RUN."""
        if self.instruction.keyword != "RUN":
            return ()
        if words := self.instruction.words:
            quoted = ("'" + word.replace("'", "'\\''") + "'" for word in words)
            script = Text.of_line(" ".join(("exec", *quoted)), self.instruction.line)
            return tuple(calls(script, self.values, self.directory))
        return tuple(calls(_script(self.instruction), self.values, self.directory))

    @cached_property
    def installs(self) -> tuple[Install, ...]:
        """Its calls of uv and pip."""
        return tuple(installs(self.calls))


@dataclass(frozen=True)
class BuildStage:
    """The instructions from one FROM to the next. `image` is the name in FROM, `parent` the earlier stage of that name.

    `values` and `directory` are those at its end. A stage inherits everything of its parent, also ARG, and nothing of
    an image, which is not read. ONBUILD is a stage of its own, because it runs in builds that start from this stage.
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
        """The stages whose layers it has, from the first to itself."""
        stages = [self]
        while parent := stages[-1].parent:
            stages.append(parent)
        return tuple(reversed(stages))

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The program calls of its own instructions."""
        return tuple(call for step in self.steps for call in step.calls)

    @cached_property
    def installs(self) -> tuple[Install, ...]:
        """Its calls of uv and pip."""
        return tuple(install for step in self.steps for install in step.installs)

    @property
    def root(self) -> str:
        """The image of the first stage of its lineage."""
        return self.lineage[0].image


@dataclass(frozen=True)
class StagedBuild:
    """A Dockerfile with its stages. `arguments`: of ARG before the first FROM, which no RUN gets."""

    dockerfile: Dockerfile
    stages: tuple[BuildStage, ...]
    arguments: Values


def build(dockerfile: Dockerfile) -> StagedBuild:
    """Return the stages of a Dockerfile."""
    arguments: dict[str, str | None] = {}
    stages: list[BuildStage] = []
    groups = _groups(dockerfile.instructions)
    for instruction in next(groups):
        if instruction.keyword == "ARG":
            arguments |= dict(_argument(instruction, dockerfile.escape, arguments, {}))
    for start, *body in groups:
        stages += _Walk(dockerfile.escape, arguments, stages).stage(start, body)
    return StagedBuild(dockerfile, tuple(stages), arguments)


def _groups(instructions: Iterable[Instruction]) -> Iterator[list[Instruction]]:
    """Yield the instructions before the first FROM, and then each FROM with those up to the next one."""
    group: list[Instruction] = []
    for instruction in instructions:
        if instruction.keyword == "FROM" and not instruction.onbuild:
            yield group
            group = []
        group.append(instruction)
    yield group


@dataclass
class _Walk:
    escape: str
    arguments: Values
    earlier: list[BuildStage]
    values: dict[str, str | None] = field(default_factory=dict)
    directory: str = "/"

    def stage(self, start: Instruction, body: list[Instruction]) -> Iterator[BuildStage]:
        """Yield the stage that a FROM starts, and one for its ONBUILD."""
        image, _, name = (*start.rest.text.split(), "", "", "")[:3]
        image = expand(image.strip("\"'"), {**PREDEFINED, **self.arguments})
        parent = next((stage for stage in self.earlier if stage.name == image.lower()), None)
        if parent:
            self.values |= parent.values
            self.directory = parent.directory
        steps = tuple(self._step(instruction) for instruction in body if not instruction.onbuild)
        name = name.lower() or str(len(self.earlier))
        stage = BuildStage(name, image, start.line, parent, steps, dict(self.values), self.directory)
        yield stage
        if triggers := tuple(self._step(instruction) for instruction in body if instruction.onbuild):
            line = triggers[0].instruction.line
            yield BuildStage(f"{name} (ONBUILD)", name, line, stage, triggers, dict(self.values), self.directory)

    def _step(self, instruction: Instruction) -> BuildStep:
        step = BuildStep(instruction, dict(self.values), self.directory)
        if instruction.keyword == "ENV":
            self.values |= dict(variables(instruction, self.escape, self.values))
        elif instruction.keyword == "ARG":
            self.values |= dict(_argument(instruction, self.escape, self.values, self.arguments))
        elif instruction.keyword == "WORKDIR":
            self.directory = posixpath.join(self.directory, expand(instruction.rest.text.strip(), self.values))
        return step


def variables(instruction: Instruction, escape: str, values: Values) -> Iterator[tuple[str, str]]:
    """Yield the variables that an ENV or LABEL sets: `NAME=value ...`, or the old `NAME value`."""
    words = split(instruction.rest, escape)
    if words and "=" not in words[0].raw:
        name, *rest = instruction.rest.text.split(maxsplit=1)
        yield name, expand("".join(rest).strip(), values)
        return
    for word in words:
        name, sign, value = word.text(values).partition("=")
        if sign:
            yield name, value


def _argument(
    instruction: Instruction, escape: str, values: Values, arguments: Values
) -> Iterator[tuple[str, str | None]]:
    """Yield the variables of an ARG. The default is the current value, else that of the ARG before the first FROM."""
    for word in split(instruction.rest, escape):
        name, sign, value = word.text(values).partition("=")
        yield name, value if sign else values.get(name, arguments.get(name, PREDEFINED.get(name)))


def _script(run: Instruction) -> Text:
    """Return the input of a RUN's shell. A heredoc alone is the script, unless it names another interpreter."""
    if not run.heredocs:
        return run.rest
    body = run.heredocs[0].body
    if len(run.heredocs) == 1 and len(run.rest.text.split()) == 1:
        return body if _for_a_shell(body.text) else Text.of_line("", run.line)
    parts = [part for heredoc in run.heredocs for part in (heredoc.body, Text.of_line(f"\n{heredoc.name}\n", run.end))]
    return Text.chain(run.rest, Text.of_line("\n", run.line), *parts)


def _for_a_shell(script: str) -> bool:
    first, _, _ = script.partition("\n")
    return not first.startswith("#!") or any(posixpath.basename(word) in SHELLS for word in first[2:].split())
