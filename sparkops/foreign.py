"""JSON that another program or machine has written."""

from __future__ import annotations

import json
from typing import Any


def loads(text: str | bytes) -> Any:
    """Return the value of JSON. Raises ValueError for any other text, and for JSON that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:  # no ValueError: it would pass each parser, and end the command for all nodes
        raise ValueError("JSON is nested too deeply") from None
