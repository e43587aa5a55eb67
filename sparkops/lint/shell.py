"""Read a shell script, such as that of a RUN, as the programs that it calls. Runs nothing.

It is split into words and operators, parsed into pipelines of commands, and listed as calls, with arguments,
environment and input if the text has them. Supports quotes, comments, substitutions, redirections, heredocs, control
words (if, for, case, {), and conditions whose result is known from the file. bashlex is no alternative: it lacks `case`
and `[[ -f`, and its licence is the GPL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, takewhile
from posixpath import basename, join, normpath
from typing import NamedTuple

from sparkops.lint.text import BRACES, Part, Text, Values, Word, closing, double_quoted, expand

SPACE = re.compile(r"(?:[^\S\n]|\\\n)+")
OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||[;|&()<>\n]")
PLAIN = re.compile(r"[^\s'\"\\`$|&;<>()]+")
DOLLAR = re.compile(r"\$(?:[A-Za-z_]\w*|[^\s'\"]?)")
DESCRIPTOR = re.compile(r"\d+(?=[<>])")
PARENTHESES = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|[()]", re.DOTALL)


def _after(text: str, sign: str, at: int) -> int:
    """Return the offset after the next `sign`, or the end."""
    place = text.find(sign, at)
    return len(text) if place < 0 else place + 1


@dataclass
class Lexer:
    """Iterator over words and operators."""

    script: Text
    at: int = 0
    waiting: list[tuple[str, bool]] = field(default_factory=list)
    """Heredocs that begin on the next line: name, and whether to remove leading tabs."""
    bodies: list[Text] = field(default_factory=list)

    def token(self) -> Word | str | None:
        """Return the next word or operator; None at the end."""
        text = self.script.text
        if space := SPACE.match(text, self.at):
            self.at = space.end()
        if text.startswith("#", self.at):
            self.at = max(text.find("\n", self.at), 0) or len(text)
        if self.at >= len(text):
            return None
        if descriptor := DESCRIPTOR.match(text, self.at):
            self.at = descriptor.end()
        if text[self.at : self.at + 2] in ("<(", ">("):
            return self._substituted()
        if not (operator := OPERATOR.match(text, self.at)):
            return self._word()
        self.at = operator.end()
        if operator[0] == "\n":
            self._read_bodies()
        return operator[0]

    def _read_bodies(self) -> None:
        for name, tabs in self.waiting:
            lines: list[tuple[int, str]] = []
            while self.at < len(self.script.text):
                begin, self.at = self.at, _after(self.script.text, "\n", self.at)
                line = self.script.text[begin : self.at].removesuffix("\n")
                line = line.lstrip("\t") if tabs else line
                if line == name:
                    break
                lines.append((self.script.line(begin), line))
            self.bodies.append(Text.joined(lines, "\n"))
        self.waiting.clear()

    def _substituted(self) -> Word:
        """Return `<(commands)`, which a program gets as a file name."""
        begin, end = self.at, closing(self.script.text, self.at + 2, PARENTHESES)
        self.at = end
        raw = self.script.text[begin:end]
        return Word((Part(raw, "'"),), self.script.line(begin), raw, (self.script.cut(begin + 2, end - 1),))

    def _word(self) -> Word:
        begin = self.at
        parts: list[Part] = []
        scripts: list[Text] = []
        while self.at < len(self.script.text) and (pieces := self._part(scripts)) is not None:
            parts += pieces
        return Word(tuple(parts), self.script.line(begin), self.script.text[begin : self.at], tuple(scripts))

    def _part(self, scripts: list[Text]) -> list[Part] | None:
        """Return the next piece of a word, or None at the end of the word."""
        text, begin = self.script.text, self.at
        if plain := PLAIN.match(text, begin):
            self.at = plain.end()
            return [Part(plain[0])]
        match text[begin]:
            case "'":
                self.at = _after(text, "'", begin + 1)
                return [Part(text[begin + 1 : self.at].removesuffix("'"), "'")]
            case '"':
                return self._double(scripts)
            case "\\":
                self.at += 2
                return [Part(text[begin + 1 : self.at].strip("\n"), "'")]
            case "$" | "`":
                return [self._dollar(scripts)]
            case _:
                return None

    def _double(self, scripts: list[Text]) -> list[Part]:
        text, begin = self.script.text, self.at + 1
        parts: list[Part] = []
        self.at = begin
        while self.at < len(text) and text[self.at] != '"':
            if text.startswith(("$(", "`"), self.at):
                parts += double_quoted(text[begin : self.at])
                parts.append(self._dollar(scripts))
                begin = self.at
            else:
                self.at += 2 if text[self.at] == "\\" else 1
        parts += double_quoted(text[begin : self.at].replace("\\\n", ""))
        self.at += 1
        return parts

    def _dollar(self, scripts: list[Text]) -> Part:
        """Return a variable, to expand later, or a substitution with unknown output."""
        text, begin = self.script.text, self.at
        if text.startswith("${", begin):
            self.at = closing(text, begin + 2, BRACES)
            return Part(text[begin : self.at])
        if text.startswith("`", begin):
            self.at = _after(text, "`", begin + 1)
            scripts.append(self.script.cut(begin + 1, self.at - 1))
        elif text.startswith("$((", begin):
            self.at = closing(text, begin + 2, PARENTHESES)
        elif text.startswith("$(", begin):
            self.at = closing(text, begin + 2, PARENTHESES)
            scripts.append(self.script.cut(begin + 2, self.at - 1))
        else:
            name = DOLLAR.match(text, begin)
            self.at = name.end() if name else begin + 1
            return Part(text[begin : self.at])
        return Part(text[begin : self.at], "'")


CONTROL_WORDS = frozenset({"if", "then", "elif", "else", "fi", "do", "done", "while", "until", "!", "{", "}", "esac"})
ENDS_COMMAND = frozenset({"|", "|&", "(", ")"})
ENDS_CASE = frozenset({";;", ";&", ";;&"})
ENDS_PIPELINE = frozenset({"&&", "||", ";", "&", "\n"}) | ENDS_CASE
HEREDOCS = frozenset({"<<", "<<-"})
EMPTY = Text.of_line("", 1)


class Redirect(NamedTuple):
    """A redirection with its target; `body` is the text of a heredoc."""

    operator: str
    target: Word
    body: Text = EMPTY

    @property
    def quoted(self) -> bool:
        """Whether the heredoc is literal text."""
        return any(part.quote for part in self.target.parts)


CONDITION, THEN, ELSE = 0, 1, 2
Arm = tuple[int, int]
"""The number of an `if` in the script, and its part."""
MACHINE = {
    "$(uname -m)": "aarch64",
    "`uname -m`": "aarch64",
    "$(arch)": "aarch64",
    "$(dpkg --print-architecture)": "arm64",
}
"""Output of these commands on a Spark."""


class Simple(NamedTuple):
    """A command: assignments, program and arguments as one list of words.

    `arms` are the parts of all `if` around it, the outermost first, and `subshells` the numbers of all `(` around it.
    `negated`: it follows a `!`. `in_case`: it is in a `case`.
    """

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]
    arms: tuple[Arm, ...] = ()
    negated: bool = False
    subshells: tuple[int, ...] = ()
    in_case: bool = False


Pipeline = tuple[Simple, ...]


def pipelines(script: Text) -> list[Pipeline]:
    """Return every pipeline of the script in source order, also in branches that may not run."""
    parser = _Parser(Lexer(script))
    while (token := parser.lexer.token()) is not None:
        parser.take(token)
    parser.take("\n")
    bodies = iter(parser.lexer.bodies)
    return [tuple(_with_bodies(simple, bodies) for simple in pipeline) for pipeline in parser.pipelines]


def _with_bodies(simple: Simple, bodies: Iterator[Text]) -> Simple:
    redirects = (
        redirect._replace(body=next(bodies, EMPTY)) if redirect.operator in HEREDOCS else redirect
        for redirect in simple.redirects
    )
    return simple._replace(redirects=tuple(redirects))


def condition_holds(pipeline: Pipeline, values: Values) -> bool | None:
    """Return whether a condition holds on a Spark; None if unknown."""
    if len(pipeline) != 1:
        return None
    words = [word.text(values) for word in pipeline[0].words]
    for command, output in MACHINE.items():
        words = [word.replace(command, output) for word in words]
    result = None if any("$" in word or "`" in word for word in words) else _result(words)
    return result if result is None else result != pipeline[0].negated


def _result(words: list[str]) -> bool | None:
    match words:
        case ["true"] | [":"]:
            return True
        case ["false"]:
            return False
        case ["[" | "[[" | "test", *test]:
            return _test_result(test[:-1] if test[-1:] in (["]"], ["]]"]) else test)
        case _:
            return None


def _test_result(test: list[str]) -> bool | None:
    match test:
        case [value, "=" | "==", expected] if "*" not in expected:
            return value == expected
        case [value, "!=", expected] if "*" not in expected:
            return value != expected
        case ["-n", text]:
            return bool(text)
        case ["-z", text]:
            return not text
        case _:
            return None


@dataclass
class _Parser:
    lexer: Lexer
    pipelines: list[Pipeline] = field(default_factory=list)
    pipeline: list[Simple] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    cases: int = 0
    arms: list[Arm] = field(default_factory=list)
    chained: list[bool] = field(default_factory=list)
    """For each of `arms`, whether it began with `elif`, so that the `fi` of the outer `if` ends it."""
    ifs: int = 0
    subshells: list[int] = field(default_factory=list)
    opened: int = 0
    negated: bool = False
    pattern: bool = False
    """Whether the next words are the pattern of a `case`, up to its parenthesis."""

    def take(self, token: Word | str) -> None:
        if isinstance(token, Word):
            self._take_word(token)
        elif self.pattern:
            self.pattern = token != ")"  # noqa: S105 - a token of a script
        elif token in ENDS_COMMAND:
            self._end_command()
            if token == "(":  # noqa: S105 - a token of a script
                self.opened += 1
                self.subshells.append(self.opened)
            elif token == ")":  # noqa: S105
                del self.subshells[-1:]
        elif token in ENDS_PIPELINE:
            self._end_pipeline()
            self.pattern = self.cases > 0 and token in ENDS_CASE
        else:
            self._redirect(token)

    def _take_word(self, word: Word) -> None:
        if word.raw == "esac" and not self.words:
            self.cases, self.pattern = max(self.cases - 1, 0), False
        elif not self.pattern and not self.words and word.raw in CONTROL_WORDS:
            self._control(word.raw)
        elif not self.pattern:
            self.words.append(word)
            if word.raw == "in" and len(self.words) == 3 and self.words[0].raw == "case":
                self.words.clear()
                self.cases, self.pattern = self.cases + 1, True

    def _control(self, word: str) -> None:
        if word == "!":
            self.negated = True
        elif word == "if":
            self._begin_if(chained=False)
        elif word == "fi":
            while self.arms and self.chained.pop():
                self.arms.pop()
            del self.arms[-1:]
        elif word in ("then", "else", "elif") and self.arms:
            self.arms[-1] = (self.arms[-1][0], THEN if word == "then" else ELSE)
            if word == "elif":
                self._begin_if(chained=True)

    def _begin_if(self, *, chained: bool) -> None:
        self.ifs += 1
        self.arms.append((self.ifs, CONDITION))
        self.chained.append(chained)

    def _end_command(self) -> None:
        if self.words or self.redirects:
            scopes = tuple(self.arms), self.negated, tuple(self.subshells), self.cases > 0
            self.pipeline.append(Simple(tuple(self.words), tuple(self.redirects), *scopes))
            self.negated = False
        self.words.clear()
        self.redirects.clear()

    def _end_pipeline(self) -> None:
        self._end_command()
        if self.pipeline:
            self.pipelines.append(tuple(self.pipeline))
        self.pipeline.clear()

    def _redirect(self, operator: str) -> None:
        target = self.lexer.token()
        while isinstance(target, str) and target not in ENDS_COMMAND | ENDS_PIPELINE:  # `< <`, which no shell takes
            operator, target = target, self.lexer.token()
        if not isinstance(target, Word):
            if target is not None:
                self.take(target)
            return
        self.redirects.append(Redirect(operator, target))
        if operator in HEREDOCS:
            self.lexer.waiting.append((target.text({}), operator == "<<-"))


ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
PYTHON = re.compile(r"python[0-9.]*")
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
WRAPPERS: Mapping[str, str] = {
    **dict.fromkeys(("command", "exec", "nohup", "setarch", "time"), ""),
    "env": "uC",
    "ionice": "cnp",
    "nice": "n",
    "stdbuf": "ioe",
    "sudo": "ugCDhpU",
    "timeout": "ks",
    "xargs": "adEILnPs",
}
"""Programs that start another program, with the letters of their options that take a value."""
RUNNERS: Mapping[str, str] = dict.fromkeys(("conda", "mamba", "micromamba"), "np")
"""Programs whose verb `run` starts another program, with the letters of their options that take a value."""
WRAPPED = re.compile(r"-.*|[0-9.]+[smhd]?")
"""Words between a wrapper and its command: options, a niceness, a duration."""
MAX_DEPTH = 8


@dataclass(frozen=True)
class ExpandedRedirect:
    """A redirection with its variables expanded: the file of an output, or the text of a heredoc."""

    operator: str
    target: str
    body: str


@dataclass(frozen=True)
class Call:
    """One program, without wrappers such as sudo; `python -m pip` is pip.

    `before` are the earlier calls of its pipeline, `inside` those in its own arguments.
    """

    argv: tuple[str, ...]
    line: int
    environment: Values
    directory: str = "/"
    redirects: tuple[ExpandedRedirect, ...] = ()
    before: tuple[Call, ...] = ()
    inside: tuple[Call, ...] = ()

    @cached_property
    def program(self) -> str:
        """Its name without a directory."""
        return basename(self.argv[0])


def calls(script: Text, environment: Values, directory: str = "/") -> Iterator[Call]:
    """Yield every call of a script that starts in `directory`, in source order, also in substitutions and in `sh -c`.

    Skip branches of an `if` that never run on a Spark with the values of the file.
    """
    return _Shell(dict(environment), set(environment), directory).run(script)


@dataclass
class _Shell:
    values: dict[str, str | None]
    exported: set[str]
    directory: str
    previous: str = "/"
    depth: int = 0
    outside: dict[int, tuple[dict[str, str | None], set[str], str]] = field(default_factory=dict)
    """For each open `(`, the state to return to after its `)`."""
    branches: dict[int, tuple[int, str]] = field(default_factory=dict)
    """For each `if`, its part that was read last, and the directory before it."""

    def run(self, script: Text) -> Iterator[Call]:
        results: dict[int, bool | None] = {}
        for pipeline in pipelines(script):
            arms = pipeline[0].arms
            if any(results.get(number) is (arm == ELSE) for number, arm in arms if arm != CONDITION):
                continue
            if arms and arms[-1][1] == CONDITION:
                number, result = arms[-1][0], condition_holds(pipeline, self.values)
                results[number] = result if results.get(number, result) is result else None
            undecided = any(results.get(number) is None for number, arm in arms if arm != CONDITION)
            before: list[Call] = []
            for simple in pipeline:
                self._enter(simple)
                for call in self._simple(simple, tuple(before), maybe=undecided or simple.in_case):
                    yield call
                    before.append(call)

    def _enter(self, simple: Simple) -> None:
        """Return to the state before each `(` that has ended, and to the directory before an `if` in its `else`."""
        for number in reversed([number for number in self.outside if number not in simple.subshells]):
            self.values, self.exported, self.directory = self.outside.pop(number)
        for number in simple.subshells:
            self.outside.setdefault(number, (dict(self.values), set(self.exported), self.directory))
        for number, arm in simple.arms:
            last, directory = self.branches.setdefault(number, (arm, self.directory))
            if arm == ELSE != last:
                self.directory = directory
            self.branches[number] = (arm, directory)

    def _nested(self, script: Text, environment: Values) -> Iterator[Call]:
        if self.depth < MAX_DEPTH:
            values, exported = {**self.values, **environment}, self.exported | set(environment)
            yield from _Shell(values, exported, self.directory, depth=self.depth + 1).run(script)

    def _simple(self, simple: Simple, before: tuple[Call, ...], *, maybe: bool) -> Iterator[Call]:
        """Yield the calls of a command. `maybe`: it may not run, so that another value of a variable may stay."""
        every_word = (*simple.words, *(redirect.target for redirect in simple.redirects))
        inside = tuple(call for word in every_word for script in word.scripts for call in self._nested(script, {}))
        yield from inside
        assigned, words = self._assignments(simple.words)
        argv = tuple(field for word in words for field in word.fields(self.values))
        if not argv:
            other = {name for name in assigned if maybe and self.values.get(name, assigned[name]) != assigned[name]}
            self.values |= assigned | dict.fromkeys(other)
        elif not self._changes_shell(argv):
            environment = {name: self.values.get(name) for name in self.exported} | assigned
            redirects = tuple(map(self._expanded, simple.redirects))
            call = _unwrapped(Call(argv, words[0].line, environment, self.directory, redirects, before, inside))
            yield call
            yield from self._executed(call) if call.program == "find" else self._shell_script(call, simple)

    def _assignments(self, words: tuple[Word, ...]) -> tuple[dict[str, str | None], tuple[Word, ...]]:
        assigned: dict[str, str | None] = {}
        for number, word in enumerate(words):
            first = word.parts[0]
            match = None if first.quote or "=" not in first.text else ASSIGNMENT.fullmatch(word.text(self.values))
            if not match:
                return assigned, words[number:]
            assigned[match[1]] = match[2]
        return assigned, ()

    def _changes_shell(self, argv: tuple[str, ...]) -> bool:
        """Return whether a command changes the shell itself, and apply the change for later commands."""
        match argv:
            case ("export" | "declare" | "readonly" | "local" | "typeset", *rest):
                for match in map(ASSIGNMENT.fullmatch, rest):
                    self.values |= {match[1]: match[2]} if match else {}
                if argv[0] == "export":
                    self.exported |= {assignment.partition("=")[0] for assignment in rest}
            case ("unset", *rest):
                for name in rest:
                    self.values.pop(name, None)
            case ("set", *rest) if "--" in rest:
                self.values["@"] = " ".join(rest[rest.index("--") + 1 :])
            case ("cd" | "pushd" | "popd", *rest):
                target = next((word for word in rest if word == "-" or not word.startswith("-")), "~")
                back = target == "-" or argv[0] == "popd"
                there = self.previous if back else normpath(join("/", self.directory, target))
                self.previous, self.directory = self.directory, there
            case ("for", name, "in", *rest):
                self.values[name] = " ".join(rest)
            case _:
                return False
        return True

    def _expanded(self, redirect: Redirect) -> ExpandedRedirect:
        body = redirect.body.text
        target = redirect.target.text(self.values)
        return ExpandedRedirect(redirect.operator, target, body if redirect.quoted else expand(body, self.values))

    def _shell_script(self, call: Call, simple: Simple) -> Iterator[Call]:
        """Yield the calls in the script of a shell: from `-c`, or from a heredoc."""
        if call.program not in SHELLS:
            return
        for option, script in zip(call.argv[1:], call.argv[2:], strict=False):
            if re.fullmatch(r"-[a-z]*c", option):
                yield from self._nested(Text.of_line(script, call.line), call.environment)
                return
        for redirect in simple.redirects:
            if redirect.operator in HEREDOCS:
                yield from self._nested(redirect.body, call.environment)

    def _executed(self, call: Call) -> Iterator[Call]:
        """Yield the call that `find -exec` makes, with the searched name in place of the file."""
        for number, word in enumerate(call.argv):
            if word in ("-exec", "-execdir"):
                given = takewhile(lambda word: word not in (";", "+"), call.argv[number + 1 :])
                name = next((value for option, value in pairwise(call.argv) if option == "-name"), "{}")
                if argv := tuple(name if word == "{}" else word for word in given):
                    yield _unwrapped(replace(call, argv=argv, redirects=()))


def _unwrapped(call: Call) -> Call:
    argv, environment = list(call.argv), dict(call.environment)
    while argv:
        program = basename(argv[0])
        valued = WRAPPERS.get(program, RUNNERS.get(program) if argv[1:2] == ["run"] else None)
        if valued is None:
            break
        argv.pop(0)
        if program in RUNNERS:
            argv.pop(0)
        elif program == "xargs":
            argv += [word for earlier in call.before for word in earlier.argv[1:] if ".whl" in word]
        while argv and (WRAPPED.fullmatch(argv[0]) or ASSIGNMENT.fullmatch(argv[0])):
            word = argv.pop(0)
            takes = (len(word) == 2 and word[1] in valued) or (program in RUNNERS and word in ("--name", "--prefix"))
            value = argv.pop(0) if argv and takes else ""
            if match := ASSIGNMENT.fullmatch(word):
                environment[match[1]] = match[2]
            elif program == "env" and word == "-u":
                environment.pop(value, None)
    if len(argv) > 2 and PYTHON.fullmatch(basename(argv[0])) and "-m" in argv[1:-1]:
        argv = argv[argv.index("-m") + 1 :]
    return replace(call, argv=tuple(argv) or call.argv, environment=environment)
