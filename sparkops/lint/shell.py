"""A shell script as pipelines of commands. It reads what stands in a Dockerfile's RUN; nothing is ever run.

Quotes, comments, substitutions, redirections, heredocs, and the words that steer (if, for, case, {). bashlex was
tried: it knows neither `case` nor `[[ -f`, and its licence is the GPL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sparkops.lint.lexer import Lexer
from sparkops.lint.text import Text
from sparkops.lint.words import Word

STEERING = frozenset({"if", "then", "elif", "else", "fi", "do", "done", "while", "until", "!", "{", "}", "esac"})
ENDS_COMMAND = frozenset({"|", "|&", "(", ")"})
ENDS_CASE = frozenset({";;", ";&", ";;&"})
ENDS_PIPELINE = frozenset({"&&", "||", ";", "&", "\n"}) | ENDS_CASE
HEREDOCS = frozenset({"<<", "<<-"})
EMPTY = Text.of_line("", 1)


class Redirect(NamedTuple):
    """`>` and its kin with the word behind it; what a heredoc holds is in `body`."""

    operator: str
    target: Word
    body: Text = EMPTY

    @property
    def quoted(self) -> bool:
        """Whether nothing in the heredoc is expanded."""
        return any(part.quote for part in self.target.parts)


CONDITION, THEN, ELSE = 0, 1, 2
Arm = tuple[int, int]
"""An `if` by its number in the script, and which part of it."""


class Simple(NamedTuple):
    """A command: assignments, program and arguments as one list of words.

    `arms` are the parts of each `if` that it stands in, the outermost first. `negated`: ! stands before it.
    """

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]
    arms: tuple[Arm, ...] = ()
    negated: bool = False


Pipeline = tuple[Simple, ...]


def pipelines(script: Text) -> list[Pipeline]:
    """Every pipeline of the script, in the order in which it is written, whatever decides whether it runs."""
    parser = _Parser(Lexer(script))
    while (token := parser.lexer.token()) is not None:
        parser.take(token)
    parser.take("\n")
    bodies = iter(parser.lexer.bodies)
    return [tuple(_with_bodies(simple, bodies) for simple in pipeline) for pipeline in parser.found]


def _with_bodies(simple: Simple, bodies: Iterator[Text]) -> Simple:
    redirects = (
        each._replace(body=next(bodies, EMPTY)) if each.operator in HEREDOCS else each for each in simple.redirects
    )
    return simple._replace(redirects=tuple(redirects)) if simple.redirects else simple


@dataclass
class _Parser:
    lexer: Lexer
    found: list[Pipeline] = field(default_factory=list)
    pipeline: list[Simple] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    cases: int = 0
    arms: list[Arm] = field(default_factory=list)
    chained: list[bool] = field(default_factory=list)
    """For each of `arms`, whether an elif began it: it ends with the `fi` of the one around it."""
    ifs: int = 0
    negated: bool = False
    pattern: bool = False
    """Whether the pattern of a case is being read, up to its parenthesis."""

    def take(self, token: Word | str) -> None:
        if isinstance(token, Word):
            self._take_word(token)
        elif self.pattern:
            self.pattern = token != ")"  # noqa: S105 - a token of a script
        elif token in ENDS_COMMAND:
            self._end_command()
        elif token in ENDS_PIPELINE:
            self._end_pipeline()
            self.pattern = self.cases > 0 and token in ENDS_CASE
        else:
            self._redirect(token)

    def _take_word(self, word: Word) -> None:
        if word.raw == "esac" and not self.words:
            self.cases, self.pattern = max(self.cases - 1, 0), False
        elif not self.pattern and not self.words and word.raw in STEERING:
            self._steer(word.raw)
        elif not self.pattern:
            self.words.append(word)
            if word.raw == "in" and len(self.words) == 3 and self.words[0].raw == "case":
                self.words.clear()
                self.cases, self.pattern = self.cases + 1, True

    def _steer(self, word: str) -> None:
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
            self.pipeline.append(Simple(tuple(self.words), tuple(self.redirects), tuple(self.arms), self.negated))
            self.negated = False
        self.words.clear()
        self.redirects.clear()

    def _end_pipeline(self) -> None:
        self._end_command()
        if self.pipeline:
            self.found.append(tuple(self.pipeline))
        self.pipeline.clear()

    def _redirect(self, operator: str) -> None:
        target = self.lexer.token()
        if not isinstance(target, Word):
            if target is not None:
                self.take(target)
            return
        self.redirects.append(Redirect(operator, target))
        if operator in HEREDOCS:
            self.lexer.waiting.append((target.text({}), operator == "<<-"))
