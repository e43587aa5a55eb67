"""YAML files as plain data plus the line of every value, or a ConfigError that names the line."""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml.constructor import SafeConstructor

from sparkops import units
from sparkops.config import files
from sparkops.config.compose import MAX_DEPTH, TooMuch, compose
from sparkops.config.fields import Location, out_of_range
from sparkops.errors import ConfigError

MAX_BYTES = 1024 * 1024
MAX_VALUES = 20_000  # counted after aliases are followed, so that aliases cannot multiply for ever

TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp")}
AMBIGUOUS_BOOL = re.compile(r"(?i)y|n|yes|no|on|off")
AMBIGUOUS_INT = re.compile(r"[-+]?(0[0-9_]+|[0-9_]+(:[0-5]?[0-9])+)")

NO_NUMBER = frozenset({"float_type", "float_parsing", "int_type", "int_parsing"})
"""Kinds of pydantic's errors about a value that is no number."""
KINDS = {
    "boolean": "true or false",
    "dictionary": "a mapping of keys to values",
    "integer": "a whole number",
    "list": "a list",
    "number": "a number",
    "string": "text",
    "tuple": "a list",
}
"""Kinds of values as pydantic calls them, in the terms of YAML."""
JARGON: Mapping[str, str] = {
    r"found character '\\t' that cannot start any token": "a tab; indent with spaces",
    r"expected <block end>, but found '<(block mapping|block sequence) start>'": (
        "no line above has the indent of this line"
    ),
    r"expected <block end>, but found .*": "this line does not continue the lines before it; check indent and quotes",
    r"mapping values are not allowed here": "a second colon; put the value in quotes, or check the indent",
    r"could not find expected ':'": "a key without a colon",
    r"did not find expected (key|'-' indicator)": "this line does not continue the lines before it; check the indent",
    r"expected ',' or '[]}]', but got .*": "a list or mapping in brackets is not closed",
    r"expected the node content, but found .*": "a value is missing, or a list or mapping in brackets is not closed",
    r"found character .* that cannot start any token": "text that begins with this character needs quotes",
    r"unacceptable character .*: special characters are not allowed": "a control character",
    r"unacceptable character .*": "not text in UTF-8",
    r"found unexpected end of stream": "a quote is not closed",
    r"found unknown escape character .*": "an unknown escape; put the text in single quotes",
    r"found undefined alias .*": "an alias without an anchor; put text that begins with * in quotes",
    r"found undefined tag handle .*": "an unknown tag; put text that begins with ! in quotes",
}
"""Words of the YAML parser, and what they mean to the author of a file."""
BOUNDS = {"greater": "at least", "less": "at most"}
"""Shorter than pydantic's words."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass
class Source:
    """The data of a YAML file and the line (1 is the first) on which each value stands."""

    file: Path
    data: object = None
    lines: dict[Location, int] = field(default_factory=dict)
    files: dict[Location, Path] = field(default_factory=dict)
    """Where each value comes from that is not in `file`."""
    bases: tuple[Path, ...] = ()
    """The files that this one extends, the nearest first."""
    count: int = 0
    """Values read so far."""
    strict: Collection[str] | None = None
    """Top-level keys whose values must be unambiguous; None: all. Below any other key ambiguous values stay text."""

    def loose(self, where: Location) -> bool:
        """Return whether the value at `where` may be ambiguous."""
        return self.strict is not None and bool(where) and where[0] not in self.strict

    def place(self, where: Location) -> tuple[Path, int]:
        """Return file and line of the value at `where`, or of the nearest value around it that has a line."""
        nearest = self.nearest(where)
        return self.files.get(nearest, self.file), self.lines.get(nearest, 1)

    def fail(self, where: Location, problem: str) -> ConfigError:
        return ConfigError(*self.place(where), dotted(where), problem)

    def nearest(self, where: Location) -> Location:
        """Return `where`, or the nearest value around it that has a line; () if none has."""
        return next(where[:n] for n in range(len(where), -1, -1) if n == 0 or where[:n] in self.lines)


def dotted(where: Location) -> str:
    """Return a location as text: ('nodes', 0) is nodes[0]."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def read(file: Path, strict: Collection[str] | None = None, content: bytes | None = None) -> Source:
    """Read a YAML file, or its `content` where the caller has read it.

    Raises ConfigError: missing, too large, not YAML, a tag, a duplicate key.

    With `strict`, tags, ambiguous values and duplicate keys are errors only below these top-level keys; elsewhere
    the last of two duplicates counts.
    """
    source = Source(file, strict=strict)
    node = _compose(source, (), _text(source) if content is None else content)
    if node is None:
        raise source.fail((), "the file is empty")
    source.data = _value(source, (), node, 0)
    return source


def value(place: Path, where: Location, text: str) -> object:
    """Read a value from elsewhere, as strictly as a file; None for no text. Raises ConfigError."""
    source = Source(place)
    node = _compose(source, where, text)
    return None if node is None else _value(source, where, node, 0)


def validate(source: Source, model: type[Model], next_step: str = "") -> Model:
    """Check the data of a file against `model`. Raises ConfigError for all that is wrong, a line each.

    `next_step` is for a file of another kind.
    """
    if not isinstance(source.data, dict):
        keys = ", ".join(name for name, field in model.model_fields.items() if field.is_required())
        got = "a list" if isinstance(source.data, list) else repr(source.data)[:40]
        error = source.fail((), f"expected a mapping of keys to values (required: {keys}), got {got}")
        error.next_step = next_step
        raise error
    try:
        return model.model_validate(source.data)
    except ValidationError as error:
        raise _translate(source, error) from None


def _translate(source: Source, error: ValidationError) -> ConfigError:
    """Return the errors of a file by line, missing keys last: a key that is unknown may be one of them, mistyped.

    Of several about one value, such as one for each member of a union, the first counts.
    """
    parts = {part for location in source.lines for part in location}
    problems: dict[Location, tuple[bool, str]] = {}
    for details in error.errors(include_url=False):
        where, problem = _problem(details, parts)
        problems.setdefault(where, (details["type"] == "missing", problem))
    places = sorted(problems, key=lambda where: (problems[where][0], source.place(where)[1]))
    return ConfigError.joined([source.fail(where, problems[where][1]) for where in places])


def _problem(details: ErrorDetails, parts: Collection[str | int]) -> tuple[Location, str]:
    """Return the place of one error, whose parts are in the file, and its text."""
    *outer, last = details["loc"] or ("",)
    around = tuple(part for part in outer if part in parts)  # pydantic adds names of union members
    where: Location = (*around, last) if last in parts else around
    if details["type"] == "wrong_at":
        return (*where, *details["ctx"]["where"]), details["msg"]
    if details["type"] == "missing":
        return (*around, last), "missing, but required"  # other values may have a key of this name
    if details["type"] in NO_NUMBER and (named := units.unit(str(last))):
        return where, f"expected {units.EXPECTED[named]}; got {_shown(details['input'])}"
    problem = re.sub(r"^(Input should|[A-Z]\w+ should|Value error,)( be| have| match)?", r"expected", details["msg"])
    problem = re.sub(r"(greater|less) than or equal to", lambda bound: BOUNDS[bound[1]], problem)
    problem = re.sub(r"a valid (\w+)", lambda kind: KINDS.get(kind[1], kind[0]), problem)
    problem = re.sub(r" or instance of \w+| after validation.*|, unable to parse.*", "", problem)
    got = details.get("input")
    shown = "got" not in problem and (isinstance(got, str | int | float | bool) or got is None)
    return where, problem + (f", got {_shown(got)}" if shown else "")


def _shown(value: object) -> str:
    """Return a value of a file as a message shows it."""
    return "nothing" if value is None else repr(value)


def _text(source: Source) -> bytes:
    try:
        return files.read(source.file, MAX_BYTES)
    except OSError as error:
        large = error.errno == errno.EFBIG
        raise source.fail((), f"{'' if large else 'cannot be read: '}{error.strerror}") from None


def _compose(source: Source, where: Location, text: str | bytes) -> yaml.Node | None:
    try:
        return compose(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = str(error.problem) if isinstance(error, TooMuch) else f"not YAML: {_meant(str(error.problem))}"
        raise ConfigError(source.file, line, dotted(where), problem) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # not UTF-8, or a character past the last one
        raise source.fail(where, f"not YAML: {_meant(str(error).splitlines()[0])}") from None


def _meant(problem: str) -> str:
    """Return the YAML parser's words as those of a person; unknown ones as they are."""
    return next((words for pattern, words in JARGON.items() if re.fullmatch(pattern, problem)), problem)


def _value(source: Source, where: Location, node: yaml.Node, depth: int) -> object:
    source.lines.setdefault(where, node.start_mark.line + 1)
    source.count += 1
    if depth > MAX_DEPTH or source.count > MAX_VALUES:
        raise source.fail(where, f"too large: expected at most {MAX_DEPTH} levels and {MAX_VALUES} values")
    if node.tag not in TAGS and not source.loose(where):
        raise source.fail(where, f"tag '{node.tag}' is not allowed, expected plain values")
    if isinstance(node, yaml.MappingNode):
        return {key: _value(source, (*where, key), child, depth + 1) for key, child in _keys(source, where, node)}
    if isinstance(node, yaml.SequenceNode):
        return [_value(source, (*where, n), child, depth + 1) for n, child in enumerate(node.value)]
    return _scalar(source, where, node)


def _keys(source: Source, where: Location, node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node]]:
    earlier: dict[str, yaml.Node] = {}
    for key, child in node.value:
        line = key.start_mark.line + 1
        if source.loose(where) and isinstance(key, yaml.ScalarNode):
            yield str(key.value), child
            continue
        if key.tag == "tag:yaml.org,2002:merge":
            problem = "merging with << is not allowed; write the values out, or use `defaults`"
            raise ConfigError(source.file, line, dotted(where), problem)
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            raise ConfigError(source.file, line, dotted(where), "expected a text key; put it in quotes")
        place = (*where, key.value)
        if key.value in earlier and not _may_repeat(source, place, earlier[key.value], child):
            problem = f"duplicate key, first on line {source.lines[place]}"
            raise ConfigError(source.file, line, dotted(place), problem)
        earlier[key.value] = child
        source.lines[place] = line
        yield key.value, child


def _may_repeat(source: Source, where: Location, first: yaml.Node, second: yaml.Node) -> bool:
    """Return whether it does not matter which of two values counts."""
    same = isinstance(first, yaml.ScalarNode) and (first.tag, first.value) == (second.tag, second.value)
    return source.loose(where) or (source.strict is not None and same)


def _scalar(source: Source, where: Location, node: yaml.Node) -> object:
    kind, text = node.tag.rpartition(":")[2], node.value
    if kind in ("str", "timestamp") or source.loose(where):
        return text
    if kind == "bool" and AMBIGUOUS_BOOL.fullmatch(text):
        raise source.fail(where, f"{text} is ambiguous in YAML, expected true or false; text needs quotes: '{text}'")
    if kind == "int" and AMBIGUOUS_INT.fullmatch(text):
        raise source.fail(where, f"{text} is ambiguous in YAML, expected a decimal number; text needs quotes: '{text}'")
    if kind in ("map", "seq"):
        raise source.fail(where, f"{text[:40]!r} cannot be read as {kind}")
    try:
        value = SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError, LookupError):  # as in `!!int abc`, 0x_ or a number of 5000 digits
        raise source.fail(where, f"{text[:40]!r} cannot be read as {kind}") from None
    if problem := out_of_range(value):
        raise source.fail(where, f"{problem}, got {text[:40]}")
    return value
