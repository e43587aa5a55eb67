"""Find the model in a JSON body while the body arrives in parts."""

from __future__ import annotations

import json
import re

LONGEST = 1024  # bytes of a name; longer ones are not found
WINDOW = 2 * LONGEST  # bytes that stay for the next part: a key with its value is found whole
MODEL = re.compile(rb'"model"[ \t\r\n]*+:[ \t\r\n]*+"([^"]{0,%d}+)"' % LONGEST)
OPENING, CLOSING = b"{[", b"}]"


class ModelScanner:
    """Scanner for the first text under the key `model` in a JSON object, in constant memory.

    Each step over the bytes is one call in C, whatever they are; only a key `model` costs a step of its own.
    """

    def __init__(self) -> None:
        self.model: str | None = None
        self._rest = b""
        self._depth = 0
        self._quoted = 0  # 1 within a string

    def feed(self, part: bytes, *, last: bool = False) -> None:
        """Scan the next part, up to the model. The last bytes wait for what follows, unless it is the last part."""
        # Escaped quotes and backslashes give way to bytes that no name has: what remains are the ends of strings.
        text = (self._rest + part).replace(b"\\\\", b"\0\0").replace(b'\\"', b"\0\0")
        at, end = 0, len(text) if last else max(0, len(text) - WINDOW)
        for key in MODEL.finditer(text):
            if key.start() >= end:
                break
            self._pass(text[at : key.start()])
            at = key.start()
            if self._depth == 1 and not self._quoted:
                self.model = _decoded(key[1])
                return
        self._pass(text[at:end])
        self._rest = text[end:]

    def _pass(self, text: bytes) -> None:
        pieces = text.split(b'"')
        outside = b"".join(pieces[self._quoted :: 2])
        self._quoted ^= (len(pieces) - 1) & 1
        self._depth += len(outside.translate(None, CLOSING)) - len(outside.translate(None, OPENING))


def _decoded(text: bytes) -> str:
    """Decode a JSON string; empty if it is invalid."""
    try:
        return str(json.loads(b'"%s"' % text))
    except ValueError:
        return ""
