"""The types of values in recipes and inventories. Each refuses values that cannot be used in its place."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from sparkops import units
from sparkops.names import near_names
from sparkops.redact import MASK, names_secret

Location = tuple[str | int, ...]
CONTROL = re.compile(r"[\x00-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
URL, URL_WORDS = re.compile(r"(https?|file)://[^\s\"'\\]+"), "a URL that begins with https://, http:// or file://"
NEGATIVE = re.compile(r"-[0-9]+")
EXPANSION = re.compile(r"\$[({A-Za-z_]|`")


INTEGERS = range(-(2**63), 2**63)  # what JSON parsers and C programs hold
PUBLIC = (
    "looks like a secret: argv and `docker inspect` would show it; keys of clients belong to "
    "gateway.api_keys of the inventory, the hub's token to `sparkops models pull --token-file`"
)
MOST_LEVELS = 20
"""Nested lists and mappings in one argument."""


class Section(BaseModel):
    """A mapping of a YAML file: immutable, strictly typed, and closed to unknown keys.

    The end of a key's name is the unit of its number; text with a unit is converted.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        """Refuse unknown keys with the nearest known one, together with what is wrong with the others.

        A key that one of them may be, mistyped, is not reported as missing, too.
        """
        if isinstance(data, dict):
            data = {key: units.number(key, value) if key in cls.model_fields else value for key, value in data.items()}
        unknown = [key for key in data if key not in cls.model_fields] if isinstance(data, dict) else []
        if not unknown:
            return check(data)
        errors = [InitErrorDetails(type=wrong_at((key,), _hint(cls, key)), input=data[key]) for key in unknown]
        try:
            check({key: value for key, value in data.items() if key in cls.model_fields})
        except ValidationError as error:
            meant = {("missing", _similar(cls, key)) for key in unknown}
            others = (details for details in error.errors() if (details["type"], details["loc"]) not in meant)
            errors += [_again(details) for details in others]
        raise ValidationError.from_exception_data(cls.__name__, errors)


def wrong_at(where: tuple[str | int, ...], problem: str) -> PydanticCustomError:
    """Return the error of a section's validator for the value at `where` in the section."""
    return PydanticCustomError("wrong_at", "{problem}", {"where": where, "problem": problem})


def _again(details: ErrorDetails) -> InitErrorDetails:
    """Return an error of pydantic to be raised once more, among others."""
    context = {**details.get("ctx", {}), "words": details["msg"]}
    kind = PydanticCustomError(details["type"], "{words}", context)
    return InitErrorDetails(type=kind, loc=details["loc"], input=details["input"])


def _hint(section: type[BaseModel], key: object) -> str:
    keys = list(section.model_fields)
    if similar := _similar(section, key):
        return f"unknown key, did you mean '{similar[0]}'?"
    return f"unknown key, expected one of: {', '.join(keys)}"


def _similar(section: type[BaseModel], key: object) -> tuple[str, ...]:
    """Return the known key that is most like an unknown one, or nothing."""
    return tuple(near_names(str(key), section.model_fields, likeness=0.5)[:1])


def one_line(text: str) -> str:
    """Refuse text that could add a line or hide a character."""
    if control := CONTROL.search(text):
        problem = "expected one line of visible text, got character {code}"
        raise PydanticCustomError("one_line", problem, {"code": repr(control.group())})
    return text


def as_name(text: str) -> str:
    """Return a text as a name: with a dash in place of other characters."""
    return re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip("-.")[:63]


def literal(text: str) -> str:
    """Refuse shell expansions: no shell reads a value, so they would stay unexpanded."""
    if EXPANSION.search(text):
        problem = "expected a plain value: no shell expands $NAME, $(...), ${...} or backticks"
        raise PydanticCustomError("literal", problem)
    return one_line(text)


def public(name: str) -> str:
    """Refuse the name of a secret: recipes are committed, and argv and `docker inspect` show every value."""
    if names_secret(name):
        raise PydanticCustomError("public", PUBLIC)
    return one_line(name)


def relative_path(text: str) -> str:
    """Refuse a path that could leave its root, or that a program could take for an option or for two paths."""
    if text.startswith(("/", "-")) or ".." in text.split("/") or ":" in text:
        expected = "expected a relative path without '..' or colon that does not begin with a dash"
        raise PydanticCustomError("relative_path", expected)
    return one_line(text)


def local_path(text: str) -> str:
    """Refuse a path on this machine that a program could take for an option. A colon may belong to a drive."""
    if text.startswith("-"):
        raise PydanticCustomError("local_path", "expected a path that does not begin with a dash")
    return one_line(text)


def url(text: str) -> str:
    """Refuse text that is not the URL of a package index, without showing credentials."""
    if not URL.fullmatch(text) or not _splits(text):
        _, at, rest = text.rpartition("@")
        shown = f"{MASK}{rest}" if at else text
        raise PydanticCustomError(
            "url", "expected {words}, got {text}", {"words": URL_WORDS, "text": repr(shown[:200])}
        )
    return text


def _splits(text: str) -> bool:
    """Return whether a client can tell host and port apart."""
    try:
        parts = urlsplit(text)
        return parts.scheme == "file" or (bool(parts.hostname) and parts.port != 0)
    except ValueError:  # as in https://[h or https://h:port
        return False


@dataclass(frozen=True)
class Matching:
    """A validator that refuses text that does not match `expression` as a whole. `words` describe it.

    Each expression is compiled when a value needs it: one command uses few of them.
    """

    expression: str
    words: str

    def __call__(self, text: str) -> str:
        if not re.fullmatch(self.expression, text):
            context = {"words": self.words, "text": repr(text)}
            raise PydanticCustomError("matching", "expected {words}, got {text}", context)
        return text


def matching(expression: str, words: str) -> AfterValidator:
    """Return the validator for text that matches `expression`."""
    return AfterValidator(Matching(expression, words))


def out_of_range(value: object) -> str:
    """Return the problem of a number that is not finite or has more than 64 bits; empty for any other value."""
    if isinstance(value, float) and not math.isfinite(value):
        return "expected a finite number"
    return "expected a whole number of at most 64 bits" if isinstance(value, int) and value not in INTEGERS else ""


def argument(value: Any) -> Any:
    """Check every text and number inside a value that becomes an argument."""
    return _argument(value, MOST_LEVELS)


def _argument(value: Any, levels: int) -> Any:
    match value:
        case dict() | list() if not levels:
            raise PydanticCustomError("argument", "expected at most {most} levels", {"most": MOST_LEVELS})
        case dict():
            return {public(key): _argument(child, levels - 1) for key, child in value.items()}
        case list():
            return [_argument(child, levels - 1) for child in value]
        case int() | float() if problem := out_of_range(value):
            raise PydanticCustomError("argument", "{problem}", {"problem": problem})
        case str():
            return literal(value)
        case None:
            raise PydanticCustomError("argument", "expected a value; remove the key to omit the argument")
        case _:
            return value


def apart(value: Any) -> Any:
    """Refuse a list item that an engine would read as a flag.

    argparse knows no form for it: an item is a word of its own (nargs='+'), and of `--flag=a --flag=b` only b counts.
    Negative whole numbers pass; vLLM's FlexibleArgumentParser (0.32.0) splits other negative numbers at their dot.
    """
    for item in value if isinstance(value, list) else ():
        if str(item).startswith("-") and not NEGATIVE.fullmatch(str(item)):
            problem = "expected list items that do not begin with a dash, got {item}: the engine would parse a flag"
            raise PydanticCustomError("apart", problem, {"item": repr(item)})
    return value


Name = Annotated[
    str, matching(r"[a-z0-9][a-z0-9.-]{0,62}", "a name of at most 63 lower-case letters, digits, dots and dashes")
]
ModelName = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}(/[A-Za-z0-9][A-Za-z0-9._-]{0,62})?",
        "the name of a model, such as gpt-4o or org/name",
    ),
]
Text = Annotated[str, Field(min_length=1), AfterValidator(str.strip)]
"""Free text for people; may run over several lines."""
Line = Annotated[str, Field(min_length=1), AfterValidator(one_line)]
Value = Annotated[str, AfterValidator(literal)]
EnvName = Annotated[
    str, matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable"), AfterValidator(public)
]
Flag = Annotated[
    str,
    matching(r"[a-z][a-z0-9-]*(\.[a-z0-9_-]+)*", "an argument of the engine without its dashes, such as max-model-len"),
    AfterValidator(public),
]
ImageRef = Annotated[
    str, matching(r"[a-z0-9][A-Za-z0-9._/:-]*(@sha256:[0-9a-f]{64})?", "an image, such as debian:bookworm-slim")
]
PinnedImage = Annotated[
    str,
    matching(
        r"[a-z0-9][A-Za-z0-9._/:-]*@sha256:[0-9a-f]{64}", "an image by its digest, such as r.lan/guard@sha256:DIGEST"
    ),
]
Version = Annotated[str, matching(r"[0-9]+(\.[0-9]+)*((a|b|rc|\.dev|\.post)[0-9]+)*", "a version, such as 2.11.0")]
Requirement = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?==[0-9][A-Za-z0-9.!+]*",
        "a Python package pinned with ==, such as ray[default]==2.49.0",
    ),
]
Package = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._+-]*", "the name of a package")]
RelativePath = Annotated[str, Field(min_length=1), AfterValidator(relative_path)]
LocalPath = Annotated[str, Field(min_length=1), AfterValidator(local_path)]
AbsolutePath = Annotated[str, matching(r"/[^\x00-\x1f:,]*", "an absolute path without colon or comma")]
Host = Annotated[
    str,
    matching(
        r"(?![^:]*:[^:]*$)[A-Za-z0-9_][A-Za-z0-9_:%-]{0,62}(\.[A-Za-z0-9_:%-]{1,63})*\.?",
        "a host name of labels up to 63 characters, or an IP address, without a port",
    ),
]
WebOrigin = Annotated[
    str,
    matching(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9_.:\[\]-]+", "the origin of a page, such as https://chat.lan:3000"),
]
User = Annotated[str, matching(r"[a-z_][a-z0-9_.-]*", "a user's name")]
Url = Annotated[str, AfterValidator(url)]
Port = Annotated[int, Field(ge=1, le=65535)]
# No deadline of a socket lasts longer than 2^31 ms, and no machine has more of anything.
MOST = 1_000_000
Positive = Annotated[float, Field(gt=0, le=MOST)]
NotNegative = Annotated[float, Field(ge=0, le=MOST)]
Argument = Annotated[Any, AfterValidator(argument)]
FlagValue = Annotated[Argument, AfterValidator(apart)]
