"""Find the model in a JSON body while the body arrives in parts."""

from __future__ import annotations

import json
import re

STRUCTURE = re.compile(rb'["{}\[\]:,]')
NESTED = re.compile(rb'["{}\[\]]')  # without colon and comma: a prompt may be a list of 100,000 numbers
TEXT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
LONGEST = 1024  # bytes of a name or key; longer ones are truncated


class ModelScanner:
    """Scanner for the first value of the key `model` in a JSON object, in constant memory."""

    def __init__(self) -> None:
        self.model: str | None = None
        self._depth = 0
        self._text: bytearray | None = None  # the current string; None outside a string
        self._last, self._key = b"", b""
        self._rest = b""  # a backslash at the end of a part

    def feed(self, part: bytes) -> None:
        """Scan the next part, to its end or to the model."""
        part, self._rest = self._rest + part, b""
        at = 0
        while at < len(part) and self.model is None:
            at = self._structure(part, at) if self._text is None else self._string(part, at, self._text)

    def _structure(self, part: bytes, at: int) -> int:
        """Scan to the next structural character. Returns the position after it."""
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
        """Scan to the end of a string. Returns the position after it."""
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
    """Decode a JSON string; empty if it is invalid."""
    try:
        return str(json.loads(b'"%s"' % text))
    except ValueError:
        return ""
