"""Text with line numbers, its words with their quotes, and the expansion of known variables."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Values = Mapping[str, str | None]
"""Variables by name. None: declared, with an unknown value."""

MAX_VALUE = 16_384  # a value that doubles itself on every line stays unexpanded
MAX_DEPTH = 20
VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*|[@*])|\{)")
BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
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


@dataclass(frozen=True)
class Text:
    """Text joined from lines. `starts`: offset and line number of each part; the first offset is 0."""

    text: str
    starts: tuple[tuple[int, int], ...]

    @classmethod
    def of_line(cls, text: str, line: int) -> Text:
        """Return text that counts as one line, even if it has line breaks."""
        return cls(text, ((0, line),))

    @classmethod
    def joined(cls, parts: Iterable[tuple[int, str]], glue: str = "") -> Text:
        """Return the text of several lines, each with its number."""
        return cls.chain(*(cls.of_line(text, line) for line, text in parts), glue=glue)

    @classmethod
    def chain(cls, *texts: Text, glue: str = "") -> Text:
        """Return several texts as one."""
        starts: list[tuple[int, int]] = []
        offset = 0
        for text in texts:
            starts += [(offset + begin, line) for begin, line in text.starts]
            offset += len(text.text) + len(glue)
        return cls(glue.join(text.text for text in texts), tuple(starts) or ((0, 1),))

    def line(self, offset: int) -> int:
        """Return the line number of the character at `offset`."""
        return self.starts[bisect_right(self.starts, (offset, float("inf"))) - 1][1]

    def cut(self, begin: int, end: int | None = None) -> Text:
        """Return a part of it."""
        text = self.text[begin:end]
        inside = [(offset - begin, line) for offset, line in self.starts if begin < offset <= begin + len(text)]
        return Text(text, ((0, self.line(begin)), *inside))


class Part(NamedTuple):
    """A piece of a word. Single quotes prevent expansion, double quotes prevent splitting."""

    text: str
    quote: str = ""


class Word(NamedTuple):
    """A word, its first line, its source text, and the commands inside it."""

    parts: tuple[Part, ...]
    line: int
    raw: str
    scripts: tuple[Text, ...] = ()

    def text(self, values: Values) -> str:
        """Return the word as one text."""
        return "".join(part if quote == "'" else expand(part, values) for part, quote in self.parts)

    def fields(self, values: Values) -> list[str]:
        """Return the arguments that a shell expands it to: one, several or none."""
        fields: list[str] = []
        grows = False  # whether the next piece belongs to the last field
        for part, quote in self.parts:
            value = part if quote == "'" else expand(part, values)
            splits = value != part and (not quote or part in EVERY_ARGUMENT)
            pieces = value.split() if splits else [value]
            if pieces:
                if grows and not (splits and value[0].isspace()):
                    fields[-1] += pieces.pop(0)
                fields += pieces
                grows = not (splits and value[-1].isspace())
        return fields


def split(text: Text, escape: str) -> list[Word]:
    """Return the words of an instruction without a shell, such as ENV; none for an unclosed quote."""
    words: list[Word] = []
    at, pieces = 0, PIECES[escape]
    while at < len(text.text):
        begin, parts = at, list[Part]()
        while match := pieces.match(text.text, at):
            parts += _parts(match, escape)
            at = match.end()
        if parts:
            words.append(Word(tuple(parts), text.line(begin), text.text[begin:at]))
        elif text.text[at] in "\"'":
            return []
        else:
            at += 1
    return words


def _parts(piece: re.Match[str], escape: str) -> list[Part]:
    text = piece[piece.lastgroup or 0]
    match piece.lastgroup:
        case "plain":
            return [Part(text)]
        case "double":
            return list(double_quoted(text, escape))
        case _:
            return [Part(text, "'")]


def double_quoted(text: str, escape: str = "\\") -> Iterator[Part]:
    """Yield the pieces of a text in double quotes: an escaped character is not expanded."""
    for number, piece in enumerate(re.split(re.escape(escape) + r"([$`\"\\])", text)):
        if piece or not number:
            yield Part(piece, "'" if number % 2 else '"')


def expand(text: str, values: Values, depth: int = 0) -> str:
    """Return the text with known variables expanded; `$NAME` stays for an unknown NAME."""
    if "$" not in text or depth > MAX_DEPTH:
        return text
    pieces: list[str] = []
    at = 0
    while variable := VARIABLE.search(text, at):
        end = variable.end() if variable[1] else closing(text, variable.end(), BRACES)
        pieces += [text[at : variable.start()], _value(text[variable.start() : end], values, depth)]
        at = end
    expanded = "".join(pieces) + text[at:]
    return expanded if len(expanded) <= MAX_VALUE else text


def closing(text: str, at: int, brackets: re.Pattern[str]) -> int:
    """Return the offset after the bracket that closes the one before `at`, or the end of the text."""
    depth = 1
    for match in brackets.finditer(text, at):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(match[0], 0)
        if not depth:
            return match.end()
    return len(text)


def _value(reference: str, values: Values, depth: int) -> str:
    """Return the value of `$NAME`, `${NAME}` or `${NAME:-word}`."""
    match = OPERATION.fullmatch(reference[2:-1] if reference[1] == "{" else reference[1:])
    if not match:  # as in ${NAME%.whl}, which only a shell can expand
        return reference
    name, operator, word = match.groups()
    value = values.get(name)
    if operator and operator[-1] in "-=":
        return value or expand(word, values, depth + 1)
    if operator and operator[-1] == "+":
        return expand(word, values, depth + 1) if value else ""
    return reference if value is None else value
