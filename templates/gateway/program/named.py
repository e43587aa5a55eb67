"""The model that a JSON body names, found while the body arrives in parts."""

from __future__ import annotations

import json
import re

STRUCTURE = re.compile(rb'["{}\[\]:,]')
NESTED = re.compile(rb'["{}\[\]]')  # no colon, no comma: a prompt may be a list of 100,000 numbers
TEXT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
LONGEST = 1024  # bytes of a name or key; the rest of a longer one is left out


class ModelScanner:
    """Finds the first value of the key `model` in a JSON object. Its memory does not grow with the body."""

    def __init__(self) -> None:
        self.model: str | None = None
        self._depth = 0
        self._text: bytearray | None = None  # of the string that has begun; None outside of one
        self._last, self._key = b"", b""
        self._rest = b""  # a backslash whose character is in the next part

    def feed(self, part: bytes) -> None:
        """Read the next part, to its end or to the model."""
        part, self._rest = self._rest + part, b""
        at = 0
        while at < len(part) and self.model is None:
            at = self._structure(part, at) if self._text is None else self._string(part, at, self._text)

    def _structure(self, part: bytes, at: int) -> int:
        """Read up to the next mark. Returns the position after it."""
        mark = (STRUCTURE if self._depth == 1 else NESTED).search(part, at)
        if mark is None:
            return len(part)
        match mark[0]:
            case b'"':
                self._text = bytearray()
            case b":":
                self._key = self._last
            case b",":
                self._key = b""
            case _:
                self._depth += 1 if mark[0] in b"{[" else -1
        return mark.end()

    def _string(self, part: bytes, at: int, text: bytearray) -> int:
        """Read up to the end of a string. Returns the position after it."""
        end = TEXT.match(part, at).end()  # type: ignore[union-attr]  # it matches an empty text too
        if self._depth == 1:
            text += part[at : min(end, at + LONGEST - len(text))]
        if end == len(part):
            return end
        if part[end : end + 1] == b"\\":
            self._rest = part[end:]
            return len(part)
        self._last, self._text = bytes(text), None
        if self._depth == 1 and self._key == b"model":
            self.model = _decoded(self._last)
        return end + 1


def _decoded(text: bytes) -> str:
    """Return the name that a string of JSON means; no name where it is none."""
    try:
        return str(json.loads(b'"%s"' % text))
    except ValueError:
        return ""
