"""Secrets: credentials in URLs are hidden from whatever is printed or kept, and names give others away."""

from __future__ import annotations

import re
from itertools import pairwise

# Up to the last @ before the path, as URL parsers read it; or, for a password that should have been percent-encoded,
# from the user to the next @, unless a port stands where the password would.
CREDENTIALS = re.compile(r"(?<=://)(?:[^\s/?#]+@|[^\s/?#@:\[]+:(?!\d+[/?#])[^\s@]*@)")
MASK = "***@"
NAMED = frozenset({"apikey", "credential", "credentials", "passphrase", "passwd", "password", "secret", "token"})
KEYS = frozenset({"access", "account", "api", "auth", "encryption", "openai", "private", "secret", "signing", "ssh"})
"""Words that make a secret of the word `key` behind them."""
NO_SECRET = frozenset(
    {"dir", "directory", "file", "id", "ids", "length", "limit", "name", "path", "threshold", "type", "url"}
)
"""Last words of names that only tell where a secret is, or of figures about tokens of text."""
OF_TEXT = frozenset({"bos", "cls", "end", "eos", "image", "mask", "pad", "sep", "start", "stop", "unk", "video"})
"""Words that make a token of a tokenizer of the word `token` behind them, as in eos_token."""


def redacted(text: str) -> str:
    """Return the text with *** in place of the user and password of each URL in it."""
    return CREDENTIALS.sub(MASK, text)


def names_secret(name: str) -> bool:
    """Return whether a name, such as HF_TOKEN or api-key, says that its value is a secret."""
    words = re.split(r"[_.-]+", name.lower())
    pairs = [*pairwise(words)]
    keyed = any(first in KEYS and second == "key" for first, second in pairs)
    of_text = any(first in OF_TEXT and second == "token" for first, second in pairs)
    return (keyed or bool(NAMED & {*words})) and words[-1] not in NO_SECRET and not of_text
