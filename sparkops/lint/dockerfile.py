"""Parse a Dockerfile as BuildKit does, into instructions with line numbers.

Supports parser directives, continuations, comments and blank lines inside an instruction, heredocs and ONBUILD. Text
that BuildKit cannot parse becomes a problem with its line, and parsing continues. dockerfile-parse 2.0.1 is no
alternative: it parses the body of a heredoc as instructions, and stops at a blank line inside a RUN.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from sparkops.lint.text import Text, split

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
