"""Parse a shell script, such as that of a RUN, into pipelines of commands. Runs nothing.

Supports quotes, comments, substitutions, redirections, heredocs, control words (if, for, case, {), and conditions whose
result is known from the file. bashlex is no alternative: it lacks `case` and `[[ -f`, and its licence is the GPL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sparkops.lint.lexer import Lexer
from sparkops.lint.text import Text, Values, Word

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
