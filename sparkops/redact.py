"""Secrets: credentials in URLs are hidden from whatever is printed or kept, and names give others away."""

from __future__ import annotations

import re
from collections.abc import Iterable
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

KINDS = {
    "a Hugging Face token": r"hf_[A-Za-z0-9]{16,}",
    "an API key": r"sk-[A-Za-z0-9_-]{16,}",
    "an NVIDIA API key": r"nvapi-[A-Za-z0-9_-]{16,}",
    "a GitHub token": r"gh[opusr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}",
    "a GitLab token": r"glpat-[A-Za-z0-9_-]{16,}",
    "an AWS key": r"A(?:KIA|SIA)[A-Z0-9]{16}",
    "a Google API key": r"AIza[A-Za-z0-9_-]{30,}",
    "a Slack token": r"xox[abprs]-[A-Za-z0-9-]{10,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a password in a URL": r"[a-z][a-z0-9+.-]*://[^\s/:@$]*:[^\s/:@$]+@",
}
KEY = re.compile("|".join(f"(?<![A-Za-z0-9])({pattern})" for pattern in KINDS.values()))
# NAME=VALUE, NAME: VALUE and --NAME VALUE. Behind an Authorization header stands a scheme first.
VALUES = re.compile(
    r"""(?P<name>(?P<dashes>--?)?[A-Za-z_][\w.-]*)(?P<mark>\s*[=:]\s*|(?(dashes)\s+|(?!)))"""
    r"""(?P<value>"[^"]*"|'[^']*'|[^\s"']+)"""
)
NAME = re.compile(r"-{0,2}[A-Za-z_][\w.-]*")
AUTHORIZATION = re.compile(r"(?i)(\bauthorization\s*[=:]\s*)[^\"']+|(\bbearer\s+)[^\s\"']+")
HIDDEN = "***"
LOGIN = frozenset({"-u", "--user"})
"""Flags of curl and wget whose value is USER:PASSWORD."""


def redacted(text: str) -> str:
    """Return the text with *** in place of the user and password of each URL in it."""
    return CREDENTIALS.sub(MASK, text)


def shell(words: Iterable[str]) -> str:
    """Return the words of a shell command as text, with *** in place of values that may be secrets.

    These are the values of variables, flags and headers whose name says so, and text that looks like a key.
    """
    shown, hide = list[str](), False
    for word in words:
        name, equals, _ = word.partition("=")
        if hide:
            shown.append(HIDDEN)
        elif equals and NAME.fullmatch(name) and names_secret(name.lstrip("-")):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(_script(word))
        hide = word in LOGIN or (word.startswith("-") and not equals and names_secret(word.lstrip("-")))
    return " ".join(shown)


def _script(text: str) -> str:
    """Hide secrets within one word, which may itself be a script."""
    text = AUTHORIZATION.sub(lambda found: f"{found[1] or found[2]}{HIDDEN}", redacted(text))
    return KEY.sub(HIDDEN, VALUES.sub(_value, text))


def _value(found: re.Match[str]) -> str:
    secret = names_secret(found["name"].lstrip("-"))
    return f"{found['name']}{found['mark']}{HIDDEN}" if secret else found[0]


def names_secret(name: str) -> bool:
    """Return whether a name, such as HF_TOKEN or api-key, says that its value is a secret."""
    words = re.split(r"[_.-]+", name.lower())
    pairs = [*pairwise(words)]
    keyed = any(first in KEYS and second == "key" for first, second in pairs)
    of_text = any(first in OF_TEXT and second == "token" for first, second in pairs)
    return (keyed or bool(NAMED & {*words})) and words[-1] not in NO_SECRET and not of_text
