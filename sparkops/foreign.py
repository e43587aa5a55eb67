"""Text of others: JSON that another program or machine has written, and words that are shown as one line."""

from __future__ import annotations

import json
import re
from typing import Any

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal or reorder text, and lone surrogates; not tab and newline."""


def escaped(text: str) -> str:
    """Return a text with the characters of CONTROL as \\x1b or \\u202e."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return a text on one line, with a space for each break and control characters escaped.

    What an author wrote could otherwise add lines to a message, or end the comment of a file.
    """
    return escaped(" ".join(words for line in text.splitlines() if (words := line.strip()))).replace("\t", " ")


def loads(text: str | bytes) -> Any:
    """Return the value of JSON. Raises ValueError for any other text, and for JSON that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:  # no ValueError: it would pass each parser, and end the command for all nodes
        raise ValueError("JSON is nested too deeply") from None
