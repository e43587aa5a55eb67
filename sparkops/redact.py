"""The one function that hides credentials in URLs from whatever is printed or kept."""

from __future__ import annotations

import re

# Up to the last @ before the path, as URL parsers read it; or, for a password that should have been percent-encoded,
# from the user to the next @, unless a port stands where the password would.
CREDENTIALS = re.compile(r"(?<=://)(?:[^\s/?#]+@|[^\s/?#@:\[]+:(?!\d+[/?#])[^\s@]*@)")
MASK = "***@"


def redacted(text: str) -> str:
    """Return the text with *** in place of the user and password of each URL in it."""
    return CREDENTIALS.sub(MASK, text)
