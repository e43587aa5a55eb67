"""Read a Dockerfile as its stages: instructions, variables, and the commands of each RUN. Runs nothing.

A stage inherits everything from an earlier one that its FROM names, and nothing from an image. A shell is read only as
far as a list of simple commands: each branch counts as if it ran. Text that a shell refuses is split at its spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sparkops.command import tokens, unquote

WITH_HEREDOC = frozenset({"ADD", "COPY", "RUN"})
HEREDOC = re.compile(r"<<-?[\"']?(\w+)")
REFERENCE = re.compile(r"\$(?:(?P<plain>\w+)|\{(?P<name>\w+)(?::?(?P<sign>[-+])(?P<word>[^{}]*))?\})")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
MOST = 4 * 1024
"""Characters of an expanded value: one that doubles itself on each line stays as it is written."""
ENDS = frozenset(";|()\n")
"""Characters of an operator that ends a command. `&` alone ends one too, but not in a redirection."""
REDIRECTS = frozenset("<>")
PLAIN = re.compile(r"[^\s;&|()<>]+|[;&|()<>\n]")
OPENS = frozenset({"!", "do", "elif", "else", "if", "then", "until", "while", "{", "}"})
"""Words of a shell before a command."""
SHELLS = frozenset({"ash", "bash", "dash", "eval", "sh", "zsh"})
PRINTS = frozenset({"echo", "printf"})


class Instruction(NamedTuple):
    """An instruction with its line, without its flags. `bodies`: the text of each heredoc by name."""

    line: int
    keyword: str
    flags: tuple[str, ...]
    rest: str
    bodies: Mapping[str, str]

    @property
    def words(self) -> list[str]:
        """Its words without quotes."""
        try:
            return unquote(self.rest)
        except ValueError:
            return self.rest.split()

    @property
    def texts(self) -> tuple[str, ...]:
        """Its text, and that of each heredoc."""
        return (self.rest, *self.bodies.values())


def instructions(text: str) -> Iterator[Instruction]:
    """Yield each instruction, its continued lines as one, without the comments and blank lines in it."""
    lines = iter(enumerate(text.split("\n"), 1))
    for begin, first in lines:
        if not first.strip() or first.lstrip().startswith("#"):
            continue
        parts = [first]
        while parts[-1].rstrip().endswith("\\"):
            parts[-1] = parts[-1].rstrip()[:-1]
            parts.append(next((line for _, line in lines if line.strip() and line.lstrip()[0] != "#"), ""))
        keyword, *after = " ".join(parts).split(maxsplit=1)
        flags, rest = list[str](), "".join(after)
        while rest.startswith("--"):
            flag, *after = rest.split(maxsplit=1)
            flags, rest = [*flags, flag], "".join(after)
        names = HEREDOC.findall(rest) if keyword.upper() in WITH_HEREDOC else ()
        bodies = {name: "\n".join(_body(lines, name)) for name in names}
        yield Instruction(begin, keyword.upper(), tuple(flags), rest, bodies)


def _body(lines: Iterator[tuple[int, str]], name: str) -> Iterator[str]:
    for _, line in lines:
        if line.lstrip("\t") == name:
            return
        yield line


class Command(NamedTuple):
    """A simple command of a RUN: its words, without assignments before it, and its variables."""

    words: tuple[str, ...]
    values: Mapping[str, str]

    @property
    def program(self) -> str:
        """The name of its program; empty for an assignment alone."""
        return self.words[0].rpartition("/")[2] if self.words else ""


@dataclass
class Stage:
    """A stage up to an instruction. `environment` is that of ENV, which hides the `arguments` of ARG.

    `written` has the files that it may write, with their text if the Dockerfile has it; `copied` the targets of COPY.
    """

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    written: dict[str, str | None] = field(default_factory=dict)
    copied: list[str] = field(default_factory=list)

    @property
    def values(self) -> dict[str, str]:
        """The variables of a RUN."""
        return self.arguments | self.environment

    def child(self, name: str) -> Stage:
        """Return a stage that starts from this one."""
        inherited = dict(self.environment), dict(self.arguments), dict(self.written)
        return Stage(name, *inherited, [*self.copied])

    def file(self, path: str) -> str | None:
        """Return the text of a file; None if the Dockerfile does not have it."""
        return self.written.get(path, self.written.get(path.rpartition("/")[2]))

    def may_write(self, path: str) -> bool:
        """Return whether it may write a file, also by its name alone, or copy a directory that has it."""
        copied = any(f"{path}/".startswith(f"{target.rstrip('/')}/") for target in self.copied)
        return copied or not {path, path.rpartition("/")[2]}.isdisjoint(self.written)


class Step(NamedTuple):
    """An instruction, its stage up to there, and its commands, if it is a RUN."""

    instruction: Instruction
    stage: Stage
    commands: tuple[Command, ...] = ()


def steps(text: str) -> Iterator[Step]:
    """Yield each instruction with its stage as it is before; what stands before the first FROM is a stage too."""
    outside = stage = Stage("")
    stages = dict[str, Stage]()
    for one in instructions(text):
        match one.keyword:
            case "FROM":
                source, *named = [expanded(word, outside.values) for word in one.words] or [""]
                name = (named[1] if len(named) == 2 else str(len(stages))).lower()
                stage = stages[name] = stages.get(source.lower(), Stage("")).child(name)
                yield Step(one, stage)
            case "RUN":
                yield Step(one, stage, tuple(_of_run(one, stage)))
            case _:
                yield Step(one, stage)
                _follow(one, stage, outside)


def _follow(one: Instruction, stage: Stage, outside: Stage) -> None:
    """Apply an instruction to its stage."""
    if one.keyword == "ENV":
        values = stage.values
        stage.environment |= {name: expanded(value or "", values) for name, value in settings(one)}
    elif one.keyword == "ARG":
        for name, value in settings(one):
            default = stage.arguments.get(name, outside.arguments.get(name, ""))
            stage.arguments[name] = default if value is None else expanded(value, stage.values)
    elif one.keyword in ("ADD", "COPY") and one.words:
        target = expanded(one.words[-1], stage.values)
        stage.copied.append(target)
        if one.bodies:
            stage.written[target] = "\n".join(one.bodies.values())


def settings(one: Instruction) -> Iterator[tuple[str, str | None]]:
    """Yield the variables of ENV or ARG, also of `ENV NAME value`; None for an ARG without a default."""
    first, *words = one.words or [""]
    if words and "=" not in first and one.keyword == "ENV":
        yield first, " ".join(words)
        return
    for word in (first, *words):
        name, sign, value = word.partition("=")
        yield name, value if sign else None


def expanded(text: str, values: Mapping[str, str]) -> str:
    """Return the text with the values of known variables, also of ${NAME:-word} and ${NAME:+word}."""

    def value(match: re.Match[str]) -> str:
        known = values.get(match["plain"] or match["name"])
        if match["sign"] == "-":
            return known or match["word"]
        if match["sign"] == "+":
            return match["word"] if known else ""
        return match[0] if known is None else known

    for _ in range(2):  # a word may be a variable
        longer = REFERENCE.sub(value, text)
        text = longer if len(longer) <= MOST else text
    return text


def _of_run(run: Instruction, stage: Stage) -> Iterator[Command]:
    """Yield the commands of a RUN. The stage then has the files that they write."""
    script = run.rest
    if script.startswith("["):
        script = " ".join(script.strip(" []").split(","))
    if run.bodies and len(script.split()) == 1:  # a heredoc alone is the script
        script = "\n".join(run.bodies.values())
    yield from _of_script(script, stage.values, stage, run.bodies)


def _of_script(script: str, values: dict[str, str], stage: Stage, bodies: Mapping[str, str]) -> Iterator[Command]:
    """Yield the commands of a shell script, and of those that it passes to another shell, which are shorter."""
    for simple in _simple(script):
        words = [expanded(word, values) for word in simple.words]
        own = dict[str, str]()
        while words and (match := ASSIGNMENT.fullmatch(words[0])):
            own[match[1]] = match[2]
            del words[0]
        command = Command(tuple(words), values | own)
        if command.program in ("", "export"):
            exported = filter(None, map(ASSIGNMENT.fullmatch, words[1:]))
            values |= own | {match[1]: match[2] for match in exported}
        body = bodies.get(simple.heredoc)
        inside = [word for word in words[1:] if " " in word and len(word) < len(script)]
        for inner in (*inside, body or "") if command.program in SHELLS else ():
            yield from _of_script(inner, dict(command.values), stage, {})
        yield command
        _write(simple, command, body, stage)


def _write(simple: _Simple, command: Command, body: str | None, stage: Stage) -> None:
    """Note the files that a command may write: the target of its output, and each of its arguments."""
    path = expanded(simple.target, command.values)
    text = "\n".join(command.words[1:]) if command.program in PRINTS else body
    before = stage.written.get(path) if simple.appends else None
    if path:
        stage.written[path] = text if text is None or before is None else f"{before}\n{text}"
    elif command.program not in PRINTS:
        stage.written |= {word: stage.written.get(word) for word in command.words[1:]}


@dataclass
class _Simple:
    """A simple command as it is written. `target`: the file of its output; `heredoc`: the name of that on its input."""

    words: list[str] = field(default_factory=list)
    target: str = ""
    appends: bool = False
    heredoc: str = ""

    def redirect(self, operator: str, word: str) -> None:
        if operator == "<<":
            self.heredoc = word.lstrip("-")
        elif "2" in self.words[-1:]:  # as in 2>/dev/null
            self.words.pop()
        elif operator in (">", ">>"):
            self.target, self.appends = word, operator == ">>"


def _simple(script: str) -> Iterator[_Simple]:
    command, operator = _Simple(), ""
    for token in (*_tokens(script), "\n"):
        signs = set(token)
        if token and signs <= ENDS | REDIRECTS | {"&"}:
            if signs & ENDS or not signs & REDIRECTS:
                if command.words:
                    yield command
                command = _Simple()
            operator = token if signs & REDIRECTS else ""
        elif operator:
            command.redirect(operator, token)
            operator = ""
        elif command.words or token not in OPENS:
            command.words.append(token)


def _tokens(script: str) -> list[str]:
    """Return the words and operators of a script, without its lines of comments."""
    plain = "\n".join(line for line in script.split("\n") if not line.lstrip().startswith("#")).replace("\\\n", " ")
    try:
        return tokens(plain)
    except ValueError:  # an unclosed quote
        return [token.strip("\"'") for token in PLAIN.findall(plain)]
