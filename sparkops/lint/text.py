"""Text that was joined out of lines and still knows which line each of its characters came from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """`starts` says from which offset on which line of the file it is (1 is the first); the first offset is 0."""

    text: str
    starts: tuple[tuple[int, int], ...]

    @classmethod
    def of_line(cls, text: str, line: int) -> Text:
        """Text that counts as one line, whatever it holds."""
        return cls(text, ((0, line),))

    @classmethod
    def joined(cls, parts: Iterable[tuple[int, str]], glue: str = "") -> Text:
        """The text of several lines, each with its number."""
        texts: list[str] = []
        starts: list[tuple[int, int]] = []
        offset = 0
        for line, part in parts:
            starts.append((offset, line))
            texts.append(part)
            offset += len(part) + len(glue)
        return cls(glue.join(texts), tuple(starts) or ((0, 1),))

    @classmethod
    def chain(cls, *texts: Text) -> Text:
        """Texts one behind the other."""
        starts: list[tuple[int, int]] = []
        offset = 0
        for each in texts:
            starts += [(offset + begin, line) for begin, line in each.starts]
            offset += len(each.text)
        return cls("".join(each.text for each in texts), tuple(starts))

    def line(self, offset: int) -> int:
        """The line that the character at `offset` came from."""
        return self.starts[bisect_right(self.starts, (offset, float("inf"))) - 1][1]

    def cut(self, begin: int, end: int | None = None) -> Text:
        """A part of it."""
        text = self.text[begin:end]
        inside = [(offset - begin, line) for offset, line in self.starts if begin < offset <= begin + len(text)]
        return Text(text, ((0, self.line(begin)), *inside))
