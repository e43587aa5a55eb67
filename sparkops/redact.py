"""Secrets in text: found by the names of variables, flags and keys and by their form, and hidden."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

# Up to the last @ before the path, as URL parsers read it; or, for a password that should have been percent-encoded,
# from the user to the next @, unless a port stands where the password would.
CREDENTIALS = re.compile(r"(?<=://)(?:[^\s/?#]+@|[^\s/?#@:\[]+:(?!\d+[/?#])[^\s@]*@)")
WORD = re.compile(r"\S+")
MASK = "***@"
NAMED = frozenset(
    {
        *("apikey", "authtoken", "cookie", "credential", "pass", "passphrase", "passwd", "password", "privatekey"),
        *("pwd", "secret", "secretkey", "token"),
    }
)
SUFFIXES = ("password", "passwd", "apikey", "secret")
"""Ends of a word that make a secret of it, as in PGPASSWORD."""
KEYS = frozenset(
    {
        *("access", "account", "api", "app", "auth", "client", "encryption", "license", "master", "openai", "private"),
        *("secret", "signing", "ssh", "wandb"),
    }
)
"""Words that make a secret of a following `key`."""
NO_SECRET = frozenset(
    {
        *(
            "allocator",
            "budget",
            "budgets",
            "dir",
            "directory",
            "error",
            "exception",
            "host",
            "pool",
            "file",
            "id",
            "ids",
            "length",
            "limit",
            "name",
            "path",
            "py",
        ),
        *("threshold", "type", "url"),
    }
)
"""Last words of names of places of secrets, or of figures about tokens of text."""
PLURAL_SECRETS = frozenset(
    {"access", "api", "auth", "bearer", "gh", "git", "github", "gitlab", "hf", "refresh", "slack"}
)
"""First words that make secrets of `tokens`, which are otherwise pieces of text."""
NO_PASS = frozenset({"config", "first", "fuse", "last", "one", "second", "single", "two"})
"""Words with which `pass` is no password, as in first_pass."""
OF_TEXT = frozenset(
    {"bos", "cls", "end", "eos", "from", "image", "mask", "pad", "sep", "start", "stop", "unk", "video"}
)
"""Words that make a token of a tokenizer of a following `token`, as in eos_token and classifier_from_token."""

KINDS = {
    "a Hugging Face token": r"hf_[A-Za-z0-9]{16,}",
    "an API key": r"sk-[A-Za-z0-9_-]{16,}",
    "an NVIDIA API key": r"nvapi-[A-Za-z0-9_-]{16,}",
    "a GitHub token": r"gh[opusr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}",
    "a GitLab token": r"glpat-[A-Za-z0-9_-]{16,}",
    "an AWS key": r"A(?:KIA|SIA)[A-Z0-9]{16}",
    "a Google API key": r"AIza[A-Za-z0-9_-]{30,}",
    "a Slack token": r"xox[abprs]-[A-Za-z0-9-]{10,}",
    "an npm token": r"npm_[A-Za-z0-9]{36}",
    "a PyPI token": r"pypi-[A-Za-z0-9_-]{50,}",
    "a Docker Hub token": r"dckr_pat_[A-Za-z0-9_-]{20,}",
    "a JSON web token": r"eyJ[A-Za-z0-9_-]{10,512}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a Vault token": r"hvs\.[A-Za-z0-9_-]{20,}",
    "a Stripe key": r"[rs]k_live_[A-Za-z0-9]{16,}",
    "a private key": r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----",
    "a password in a URL": r"[a-z][a-z0-9+.-]{0,40}://[^\s/:@$]*:[^\s/:@$]+@",
}
KEY = re.compile("|".join(f"(?<![A-Za-z0-9])({pattern})" for pattern in KINDS.values()))
# NAME=VALUE, NAME: VALUE and --NAME VALUE. Behind an Authorization header stands a scheme first. A name is a whole run
# of its characters: another start within it would read the run again.
VALUES = re.compile(
    r"""(?<![\w.-])(?P<name>\.*+(?P<dashes>--?(?=[A-Za-z_]))?(?:[^\WA-Za-z_]|[.-])*(?P<word>[A-Za-z_][\w.-]*))"""
    r"""(?P<mark>\s*[=:]\s*|(?(dashes)\s+|(?!)))(?P<value>"[^"]*"|'[^']*'|[^\s"']+)"""
)
NAME = re.compile(r"-{0,2}[A-Za-z_][\w.-]*")
AUTHORIZATION = re.compile(
    r"(?i)(\b(?:proxy-)?authorization\s*[=:]\s*|\b(?:set-)?cookie2?\s*:\s+)[^\"']+|(\bbearer\s+)[^\s\"']+"
)
PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|(?!-----END [A-Z ]{0,40}PRIVATE KEY-----)-)*+"
    r"(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
)
# "name": and 'name':, and what may follow: a text or a list, also one that is cut off.
QUOTED = re.compile(r"""(?:"(?P<name>[A-Za-z_][\w.-]*)"|'(?P<other>[A-Za-z_][\w.-]*)')\s*:\s*""")
LITERAL = re.compile(r"""(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|\[[^\]]*\]?)""")
HIDDEN = "***"
LOGIN = frozenset({"-u", "--user"})
"""Flags of curl and wget whose value is USER:PASSWORD."""


def redacted(text: str) -> str:
    """Return the text with *** in place of the user and password of each URL in it."""
    return WORD.sub(_url, text) if "://" in text else text


def _url(word: re.Match[str]) -> str:
    """Hide credentials up to the last @ of a word: behind it, each :// would read the rest of the word again."""
    end = word[0].rfind("@") + 1
    return CREDENTIALS.sub(MASK, word[0][:end]) + word[0][end:]


def kind_of_key(text: str) -> str:
    """Return what the first key in the text is, such as `an API key`; empty without one."""
    match = KEY.search(text)
    return list(KINDS)[(match.lastindex or 1) - 1] if match else ""


def shell(words: Iterable[str]) -> str:
    """Return the words of a shell command as text, with *** in place of values that may be secrets.

    These are the values of variables, flags and headers whose name says so, and text that looks like a key.
    """
    return " ".join(_words(words))


def _words(words: Iterable[str]) -> Iterator[str]:
    hide = False
    for word in words:
        name, equals, _ = word.partition("=")
        if hide:
            yield HIDDEN
        elif equals and NAME.fullmatch(name) and names_secret(name.lstrip("-")):
            yield f"{name}={HIDDEN}"
        else:
            yield _script(word)
        hide = word in LOGIN or (word.startswith("-") and not equals and names_secret(word.lstrip("-")))


def document(text: str) -> str:
    """Return a log or another text of many lines with *** in place of what may be a secret.

    Besides what `shell` hides these are private keys to their end, and values of JSON and Python literals.
    """
    return "\n".join(map(_script, "".join(_pairs(PRIVATE_KEY.sub(HIDDEN, text))).split("\n")))


def _pairs(text: str) -> Iterator[str]:
    """Yield the text with *** in place of the values of JSON and Python literals whose names are those of secrets."""
    at = 0
    for head in QUOTED.finditer(text):
        secret = head.start() >= at and names_secret(head["name"] or head["other"])
        if secret and (value := LITERAL.match(text, head.end())):
            yield f'{text[at : head.end()]}"{HIDDEN}"'
            at = value.end()
    yield text[at:]


def hidden(value: Any) -> Any:
    """Return a value of JSON with *** in place of secrets: by the names of keys, flags and variables, and by form."""
    match value:
        case str():
            return document(value)
        case dict():
            return {key: _by_name(str(key), child) for key, child in value.items()}
        case list() | tuple() if all(isinstance(word, str) for word in value):
            return [*_words(value)]
        case list() | tuple():
            return [hidden(child) for child in value]
        case _:
            return value


def _by_name(name: str, value: Any) -> Any:
    return HIDDEN if value and not isinstance(value, dict | bool) and names_secret(name) else hidden(value)


def _script(text: str) -> str:
    """Hide secrets within one word, which may itself be a script."""
    text = AUTHORIZATION.sub(lambda match: f"{match[1] or match[2]}{HIDDEN}", redacted(text))
    return KEY.sub(HIDDEN, VALUES.sub(_value, text))


def _value(match: re.Match[str]) -> str:
    before = match.string[max(match.start() - 4, 0) : match.start()]
    of_text = TOKENIZER.fullmatch(f"{before}{match['name']} {match['value']}")
    counted = before.endswith("#") and COUNT.fullmatch(match["value"])
    quoted = (
        match["name"] == "token" and NUMBER.fullmatch(match["value"]) and match.string.startswith(" '", match.end())
    )
    key = match["value"].startswith("'tokenizer.")  # the name of one in a GGUF file
    harmless = of_text or counted or quoted or key or UNSET.fullmatch(match["value"])
    secret = names_secret(match["word"]) and not harmless
    return f"{match['name']}{match['mark']}{HIDDEN}" if secret else match[0]


TOKENIZER = re.compile(r"\s?(?:BOS|EOS|EOT|EOG|UNK|PAD|SEP|LF) token \d{1,6}")
"""A token of a tokenizer, as in llama.cpp's `EOS token = 2`: vocabularies have fewer than a million."""
COUNT = re.compile(r"\d+,?")
"""Of pieces of text, behind a number sign, as in SGLang's `#new-token: 9,`."""
NUMBER = re.compile(r"\d{1,6}")
"""Of a token of a tokenizer, as in llama.cpp's `token: 128247 '</s>' was not control-type`."""
UNSET = re.compile(r"(?:None|True|False|unexpected|<\w{1,40}>)[`,)]*")
"""As in the arguments that SGLang prints: `api_key=None, admin_api_key=None)`."""
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def names_secret(name: str) -> bool:
    """Return whether a name, such as HF_TOKEN, accessToken or api-key, says that its value is a secret."""
    words = [word for word in re.split(r"[_.-]+", CAMEL.sub("_", name).lower()) if word]
    if not words or words[-1] in NO_SECRET:
        return False
    pairs = [*pairwise(words)]
    if any(first in OF_TEXT and second == "token" for first, second in pairs):
        return False
    keyed = any(first in KEYS and second in ("key", "keys") for first, second in pairs)
    plural = any(first in PLURAL_SECRETS and second == "tokens" for first, second in pairs)
    return keyed or plural or any(_is_secret(word, words) for word in words)


def _is_secret(word: str, words: list[str]) -> bool:
    singular = word if word in ("pass", "tokens") else word.removesuffix("s")
    if singular in ("pass", "pwd"):  # alone they are a step of a compiler, and the working directory
        return len(words) > 1 and word == words[-1] and NO_PASS.isdisjoint(words) and singular != words[0]
    return singular in NAMED or singular.endswith(SUFFIXES)
