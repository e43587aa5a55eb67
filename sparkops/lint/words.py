"""Words with their quotes, and what variables make of them, as far as the values are known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sparkops.lint.text import Text

Values = Mapping[str, str | None]
"""Variables by name. None: declared, and the value is not known here."""

MAX_VALUE = 16_384  # a value that doubles itself on every line stays as it is written
MAX_DEPTH = 20
VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*|[@*])|\{)")
OPERATION = re.compile(r"([A-Za-z_]\w*|[@*])(?:(:?[-=+?])(.*))?", re.DOTALL)
EVERY_ARGUMENT = frozenset({"$@", "${@}", "$*", "${*}"})
PIECES = {
    escape: re.compile(
        rf"(?P<plain>[^\s\"'{quoted}]+)|{quoted}(?P<escaped>.)|\"(?P<double>(?:{quoted}.|[^\"{quoted}])*)\""
        r"|'(?P<single>[^']*)'",
        re.DOTALL,
    )
    for escape, quoted in (("\\", r"\\"), ("`", "`"))
}


class Part(NamedTuple):
    """A piece of a word. In single quotes nothing is expanded; in double quotes nothing is split."""

    text: str
    quote: str = ""


class Word(NamedTuple):
    """A word, the line on which it begins, how it was written, and the commands that stand inside it."""

    parts: tuple[Part, ...]
    line: int
    raw: str
    scripts: tuple[Text, ...] = ()

    def text(self, values: Values) -> str:
        """The word as one text."""
        return "".join(part if quote == "'" else expand(part, values) for part, quote in self.parts)

    def fields(self, values: Values) -> list[str]:
        """What a shell makes of it: one argument, several, or none."""
        found: list[str] = []
        grows = False  # whether the next piece belongs to the last of `found`
        for part, quote in self.parts:
            value = part if quote == "'" else expand(part, values)
            splits = value != part and (not quote or part in EVERY_ARGUMENT)
            pieces = value.split() if splits else [value]
            if pieces:
                if grows and not (splits and value[0].isspace()):
                    found[-1] += pieces.pop(0)
                found += pieces
                grows = not (splits and value[-1].isspace())
        return found


def split(text: Text, escape: str) -> list[Word]:
    """The words of an instruction that no shell reads, such as ENV. A quote that is left open leaves none at all."""
    words: list[Word] = []
    at, pieces = 0, PIECES[escape]
    while at < len(text.text):
        begin, parts = at, list[Part]()
        while found := pieces.match(text.text, at):
            parts += _parts(found, escape)
            at = found.end()
        if parts:
            words.append(Word(tuple(parts), text.line(begin), text.text[begin:at]))
        elif text.text[at] in "\"'":
            return []
        else:
            at += 1
    return words


def _parts(found: re.Match[str], escape: str) -> list[Part]:
    text = found[found.lastgroup or 0]
    match found.lastgroup:
        case "plain":
            return [Part(text)]
        case "double":
            return list(double_quoted(text, escape))
        case _:
            return [Part(text, "'")]


def double_quoted(text: str, escape: str = "\\") -> Iterator[Part]:
    """The pieces of what stands in double quotes: an escaped character is not expanded."""
    for number, piece in enumerate(re.split(re.escape(escape) + r"([$`\"\\])", text)):
        if piece or not number:
            yield Part(piece, "'" if number % 2 else '"')


def expand(text: str, values: Values, depth: int = 0) -> str:
    """The text with the variables that are known; `$NAME` stays where nothing is known about NAME."""
    if "$" not in text or depth > MAX_DEPTH:
        return text
    found: list[str] = []
    at = 0
    while variable := VARIABLE.search(text, at):
        end = variable.end() if variable[1] else brace_end(text, variable.end())
        found += [text[at : variable.start()], _value(text[variable.start() : end], values, depth)]
        at = end
    whole = "".join(found) + text[at:]
    return whole if len(whole) <= MAX_VALUE else text


def brace_end(text: str, at: int) -> int:
    """Where `${` ends whose name begins at `at`: behind its brace."""
    depth = 1
    for found in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, at):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if not depth:
            return found.end()
    return len(text)


def _value(written: str, values: Values, depth: int) -> str:
    """What `$NAME`, `${NAME}` or `${NAME:-word}` stands for."""
    found = OPERATION.fullmatch(written[2:-1] if written[1] == "{" else written[1:])
    if not found:  # as in ${NAME%.whl}, which is for a shell to know
        return written
    name, operator, word = found.groups()
    value = values.get(name)
    if operator and operator[-1] in "-=":
        return value or expand(word, values, depth + 1)
    if operator and operator[-1] == "+":
        return expand(word, values, depth + 1) if value else ""
    return written if value is None else value
