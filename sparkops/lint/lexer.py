"""The words and operators of a shell script, with the line of each word."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sparkops.lint.text import Text
from sparkops.lint.words import Part, Word, brace_end, double_quoted

SPACE = re.compile(r"(?:[^\S\n]|\\\n)+")
OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||[;|&()<>\n]")
PLAIN = re.compile(r"[^\s'\"\\`$|&;<>()]+")
DOLLAR = re.compile(r"\$(?:[A-Za-z_]\w*|[^\s'\"]?)")
DESCRIPTOR = re.compile(r"\d+(?=[<>])")
NESTED = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|[()]", re.DOTALL)


def closing(text: str, at: int) -> int:
    """Behind the parenthesis that closes what was opened before `at`, or the end."""
    depth = 1
    for match in NESTED.finditer(text, at):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if not depth:
            return match.end()
    return len(text)


def _behind(text: str, sign: str, at: int) -> int:
    place = text.find(sign, at)
    return len(text) if place < 0 else place + 1


@dataclass
class Lexer:
    """Words and operators, one after the other; None at the end."""

    script: Text
    at: int = 0
    waiting: list[tuple[str, bool]] = field(default_factory=list)
    """Heredocs that begin after the next end of line: name, and whether tabs are cut."""
    bodies: list[Text] = field(default_factory=list)

    def token(self) -> Word | str | None:
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
                begin, self.at = self.at, _behind(self.script.text, "\n", self.at)
                line = self.script.text[begin : self.at].removesuffix("\n")
                line = line.lstrip("\t") if tabs else line
                if line == name:
                    break
                lines.append((self.script.line(begin), line))
            self.bodies.append(Text.joined(lines, "\n"))
        self.waiting.clear()

    def _substituted(self) -> Word:
        """`<(commands)`, which is the name of a file for whoever gets it."""
        begin, end = self.at, closing(self.script.text, self.at + 2)
        self.at = end
        raw = self.script.text[begin:end]
        return Word((Part(raw, "'"),), self.script.line(begin), raw, (self.script.cut(begin + 2, end - 1),))

    def _word(self) -> Word:
        begin = self.at
        parts: list[Part] = []
        scripts: list[Text] = []
        while self.at < len(self.script.text):
            piece = self._part(scripts)
            if piece is None:
                break
            parts += piece
        return Word(tuple(parts), self.script.line(begin), self.script.text[begin : self.at], tuple(scripts))

    def _part(self, scripts: list[Text]) -> list[Part] | None:
        """The next piece of a word, or None where the word ends."""
        text, begin = self.script.text, self.at
        if plain := PLAIN.match(text, begin):
            self.at = plain.end()
            return [Part(plain[0])]
        match text[begin]:
            case "'":
                self.at = _behind(text, "'", begin + 1)
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
        """A variable stays to be expanded; what commands print cannot be known."""
        text, begin = self.script.text, self.at
        if text.startswith("${", begin):
            self.at = brace_end(text, begin + 2)
            return Part(text[begin : self.at])
        if text.startswith("`", begin):
            self.at = _behind(text, "`", begin + 1)
            scripts.append(self.script.cut(begin + 1, self.at - 1))
        elif text.startswith("$((", begin):
            self.at = closing(text, begin + 2)
        elif text.startswith("$(", begin):
            self.at = closing(text, begin + 2)
            scripts.append(self.script.cut(begin + 2, self.at - 1))
        else:
            name = DOLLAR.match(text, begin)
            self.at = name.end() if name else begin + 1
            return Part(text[begin : self.at])
        return Part(text[begin : self.at], "'")
