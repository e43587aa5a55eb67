"""A Dockerfile as instructions that know their lines, read as BuildKit reads it.

Parser directives, continuations, comments and blank lines inside an instruction, heredocs and ONBUILD. What BuildKit
would refuse becomes a problem with its line, and reading goes on. No parser of Python's package index does this:
dockerfile-parse 2.0.1, the well-known one, takes the body of a heredoc for instructions and stops at a blank line
inside a RUN (both were tried).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sparkops.lint.refused import Read, problems
from sparkops.lint.text import Text
from sparkops.lint.words import split

KEYWORDS = frozenset(
    {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER", "RUN"}
    | {"SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
)
WITH_HEREDOC = frozenset({"ADD", "COPY", "RUN"})
WITH_FLAGS = frozenset({"ADD", "COPY", "FROM", "HEALTHCHECK", "RUN"})
FREE_FORM = frozenset({"CMD", "ENTRYPOINT", "MAINTAINER", "RUN"})
"""Instructions with any number of words, which BuildKit does not read."""
DIRECTIVE = re.compile(r"#\s*(syntax|escape|check)\s*=\s*(.+?)\s*", re.IGNORECASE)
HEREDOC = re.compile(r"\d*<<(-?)([^<]+)")
FLAG = re.compile(r"--([a-z][^\s=]*)(?:=((?:[^\s\"']|\"[^\"]*\"|'[^']*')*))?(?:\s+|$)")


@dataclass(frozen=True)
class Heredoc:
    """What stands between `<<NAME` and NAME. A quoted name means that nothing in it is expanded."""

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

    @property
    def words(self) -> tuple[str, ...] | None:
        """The arguments of the exec form, which is a JSON list; None for any other form."""
        return _exec_form(self.rest.text)


@dataclass(frozen=True)
class Comment:
    """A comment line, without its #."""

    line: int
    text: str


@dataclass(frozen=True)
class Dockerfile:
    """What was read. `problems` are lines with what BuildKit would refuse there."""

    instructions: tuple[Instruction, ...]
    comments: tuple[Comment, ...]
    problems: tuple[tuple[int, str], ...]
    escape: str


def parse(text: str) -> Dockerfile:
    """Read a Dockerfile."""
    reader = _Reader([line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")])
    reader.directives()
    instructions = tuple(reader.instructions())
    if not any(instruction.keyword == "FROM" for instruction in instructions):
        reader.problems.append((1, "there is no FROM, expected at least one stage"))
    elif not reader.problems:
        reader.problems += problems(_read(instruction, reader.escape) for instruction in instructions)
    return Dockerfile(instructions, tuple(reader.comments), tuple(reader.problems), reader.escape)


def _read(instruction: Instruction, escape: str) -> Read:
    words: tuple[str, ...] = ()
    if instruction.keyword not in FREE_FORM:
        plain = tuple(word.raw for word in split(instruction.rest, "\\")) or tuple(instruction.rest.text.split())
        words = plain if instruction.words is None else instruction.words
    text = instruction.rest.text if escape == "\\" else ""
    return Read(
        instruction.keyword,
        instruction.flags,
        words,
        instruction.line,
        instruction.onbuild,
        instruction.words is not None,
        text,
    )


@dataclass
class _Reader:
    lines: list[str]
    at: int = 0
    escape: str = "\\"
    unknown: bool = False
    comments: list[Comment] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)

    def directives(self) -> None:
        """Comments at the very top that speak to the parser. The first line that is none ends them."""
        seen: set[str] = set()
        while self.at < len(self.lines) and (match := DIRECTIVE.fullmatch(self.lines[self.at])):
            name = match[1].lower()
            self.at += 1
            if name in seen:
                self.problems.append((self.at, f"the directive {name} stands twice, expected it once"))
            elif name == "escape" and match[2] not in ("\\", "`"):
                self.problems.append((self.at, f"escape={match[2]} is not possible, expected \\ or `"))
            elif name == "escape":
                self.escape = match[2]
            seen.add(name)

    def instructions(self) -> Iterator[Instruction]:
        while self.at < len(self.lines):
            if not self._passed_over(self.lines[self.at]):
                line = self.at + 1
                yield self._instruction(self._joined(), line)

    def _passed_over(self, line: str) -> bool:
        """Whether the line at hand is blank or a comment, wherever it stands."""
        stripped = line.strip()
        if stripped.startswith("#"):
            self.comments.append(Comment(self.at + 1, stripped[1:].strip()))
        elif stripped:
            return False
        self.at += 1
        return True

    def _joined(self) -> Text:
        """The lines of one instruction. A line goes on if it ends in one escape character, not in two."""
        continued = re.compile(rf"(^|[^{re.escape(self.escape)}]){re.escape(self.escape)}[ \t]*$")
        parts: list[tuple[int, str]] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if self._passed_over(line):
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
            self.unknown = True  # a missing \\ or an open heredoc makes an instruction of each line behind it
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
            self.problems.append((line, f"the heredoc {name} never ends, expected a line with nothing but {name}"))
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
