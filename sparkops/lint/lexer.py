"""Split a shell script into words and operators, with the line of each word."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sparkops.lint.text import BRACES, Part, Text, Word, closing, double_quoted

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
