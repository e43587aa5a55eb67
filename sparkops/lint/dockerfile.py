"""Parse a Dockerfile as BuildKit does, into instructions with line numbers, and split these into stages.

Supports parser directives, continuations, comments and blank lines inside an instruction, heredocs and ONBUILD. Text
that BuildKit cannot parse becomes a problem with its line, and parsing continues. dockerfile-parse 2.0.1 is no
alternative: it parses the body of a heredoc as instructions, and stops at a blank line inside a RUN.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from sparkops.lint.installs import Install, installs
from sparkops.lint.shell import SHELLS, Call, calls
from sparkops.lint.text import Text, Values, expand, split

KEYWORDS = frozenset(
    {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER", "RUN"}
    | {"SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
)
WITH_HEREDOC = frozenset({"ADD", "COPY", "RUN"})
WITH_FLAGS = frozenset({"ADD", "COPY", "FROM", "HEALTHCHECK", "RUN"})
DIRECTIVE = re.compile(r"#\s*(syntax|escape|check)\s*=\s*(.+?)\s*", re.IGNORECASE)
HEREDOC = re.compile(r"\d*<<(-?)([^<]+)")
FLAG = re.compile(r"--([a-z][^\s=]*)(?:=((?:[^\s\"']|\"[^\"]*\"|'[^']*')*))?(?:\s+|$)")


@dataclass(frozen=True)
class Heredoc:
    """The text between `<<NAME` and NAME. A quoted name prevents expansion."""

    name: str
    body: Text
    quoted: bool


@dataclass(frozen=True)
class Instruction:
    """One instruction; `line` to `end` are its lines with those of its heredocs. `rest` comes after its flags."""

    keyword: str
    flags: tuple[tuple[str, str], ...]
    rest: Text
    line: int
    end: int
    heredocs: tuple[Heredoc, ...] = ()
    onbuild: bool = False

    @cached_property
    def words(self) -> tuple[str, ...] | None:
        """The arguments of the exec form, which is a JSON list; None for any other form."""
        return _exec_form(self.rest.text)

    @property
    def paths(self) -> tuple[str, ...]:
        """The arguments of COPY or ADD: sources and a destination."""
        return self.words or tuple(self.rest.text.split())


@dataclass(frozen=True)
class Comment:
    """A comment line, without its #."""

    line: int
    text: str


@dataclass(frozen=True)
class Dockerfile:
    """The content of a Dockerfile. `problems`: lines that BuildKit cannot parse, with the reasons."""

    instructions: tuple[Instruction, ...]
    comments: tuple[Comment, ...]
    problems: tuple[tuple[int, str], ...]
    escape: str


def parse(text: str) -> Dockerfile:
    """Parse a Dockerfile."""
    reader = _Reader([line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")])
    reader.directives()
    instructions = tuple(reader.instructions())
    if not any(instruction.keyword == "FROM" for instruction in instructions):
        reader.problems.append((1, "no FROM, expected at least one stage"))
    return Dockerfile(instructions, tuple(reader.comments), tuple(reader.problems), reader.escape)


@dataclass
class _Reader:
    lines: list[str]
    at: int = 0
    escape: str = "\\"
    unknown: bool = False
    comments: list[Comment] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)

    def directives(self) -> None:
        """Read the parser directives: comments at the top, up to the first other line."""
        names: set[str] = set()
        while self.at < len(self.lines) and (match := DIRECTIVE.fullmatch(self.lines[self.at])):
            name = match[1].lower()
            self.at += 1
            if name in names:
                self.problems.append((self.at, f"duplicate directive {name}, expected one"))
            elif name == "escape" and match[2] not in ("\\", "`"):
                self.problems.append((self.at, f"invalid escape={match[2]}, expected \\ or `"))
            elif name == "escape":
                self.escape = match[2]
            names.add(name)

    def instructions(self) -> Iterator[Instruction]:
        while self.at < len(self.lines):
            if not self._skipped(self.lines[self.at]):
                line = self.at + 1
                yield self._instruction(self._joined(), line)

    def _skipped(self, line: str) -> bool:
        """Skip the current line if it is blank or a comment, and return whether it is."""
        stripped = line.strip()
        if stripped.startswith("#"):
            self.comments.append(Comment(self.at + 1, stripped[1:].strip()))
        elif stripped:
            return False
        self.at += 1
        return True

    def _joined(self) -> Text:
        """Return the lines of one instruction. A line continues if it ends with one escape character, not with two."""
        continued = re.compile(rf"(^|[^{re.escape(self.escape)}]){re.escape(self.escape)}[ \t]*$")
        parts: list[tuple[int, str]] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if self._skipped(line):
                continue
            self.at += 1
            match = continued.search(line)
            parts.append((self.at, line[: match.end(1)] if match else line))
            if not match:
                break
        return Text.joined(parts)

    def _instruction(self, text: Text, line: int) -> Instruction:
        keyword, text = _first_word(text)
        onbuild = keyword == "ONBUILD"
        if onbuild:
            keyword, text = _first_word(text)
        if keyword not in KEYWORDS and not self.unknown:
            self.unknown = True  # after a missing \\ or an unclosed heredoc each following line would be one
            self.problems.append((line, f"unknown instruction {keyword[:30]}, expected one such as RUN or COPY"))
        heredocs = tuple(self._heredocs(text, line)) if keyword in WITH_HEREDOC and "<<" in text.text else ()
        flags, rest = _flags(text) if keyword in WITH_FLAGS else ((), text)
        return Instruction(keyword, flags, rest, line, self.at, heredocs, onbuild)

    def _heredocs(self, text: Text, line: int) -> Iterator[Heredoc]:
        if _exec_form(text.text) is not None:
            return
        for word in split(text, "\\"):
            if match := HEREDOC.fullmatch(word.raw):
                name = re.sub(r"[\"'\\]", "", match[2])
                body = self._body(name, line, tabs=bool(match[1]))
                yield Heredoc(name, body, quoted=name != match[2])

    def _body(self, name: str, line: int, *, tabs: bool) -> Text:
        body: list[tuple[int, str]] = []
        while self.at < len(self.lines):
            text = self.lines[self.at].lstrip("\t") if tabs else self.lines[self.at]
            self.at += 1
            if text == name:
                break
            body.append((self.at, text))
        else:
            self.problems.append((line, f"unclosed heredoc {name}, expected a line with only {name}"))
        return Text.joined(body, "\n")


def _first_word(text: Text) -> tuple[str, Text]:
    match = re.match(r"\s*(\S*)\s*", text.text)
    assert match is not None  # it matches any text  # noqa: S101
    return match[1].upper(), text.cut(match.end())


def _flags(text: Text) -> tuple[tuple[tuple[str, str], ...], Text]:
    flags: list[tuple[str, str]] = []
    at = 0
    while match := FLAG.match(text.text, at):
        flags.append((match[1], re.sub(r"[\"']", "", match[2] or "")))
        at = match.end()
    return tuple(flags), text.cut(at)


def _exec_form(text: str) -> tuple[str, ...] | None:
    if not text.lstrip().startswith("["):
        return None
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):  # a shell's own [ test ], or many of [[
        return None
    return tuple(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


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
