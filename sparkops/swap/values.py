"""The values of a swap from parsed JSON, without pydantic, whose import takes longer than to read a node.

Guards check what they keep and receive in wire.py, with pydantic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from sparkops.errors import SparkopsError
from sparkops.swap.journal import SCHEMA

Value = TypeVar("Value")
NONE = type(None)


class WireError(SparkopsError):
    """A message or file that this version cannot read."""


def require_schema(kind: type[Value], value: Value) -> Value:
    """Return a value. Raises WireError for one that a newer version has written."""
    if (schema := getattr(value, "schema", SCHEMA)) > SCHEMA:
        step = "Use the version of sparkops that last deployed to this fleet, or a newer one."
        raise WireError(f"{kind.__name__}: schema {schema}; expected up to {SCHEMA}", next_step=step)
    return value


def parse(kind: type[Value], parsed: Any) -> Value:
    """Return parsed JSON as a dataclass. Raises WireError for another kind, or of a newer version."""
    try:
        value = cast("Value", _built(kind, parsed))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"{kind.__name__}: {error}") from None
    return require_schema(kind, value)


def _built(kind: Any, value: Any) -> Any:
    """Return a value of JSON as `kind`: a dataclass, an enum, text, a number, one of them or None, or several."""
    origin, inner = get_origin(kind), get_args(kind)
    if NONE in inner:
        return None if value is None else _built(next(argument for argument in inner if argument is not NONE), value)
    if origin in (tuple, frozenset):
        return origin(_built(inner[0], item) for item in _checked(list, value))
    if origin is Mapping:
        return {_built(inner[0], key): _built(inner[1], item) for key, item in _checked(dict, value).items()}
    if is_dataclass(kind):
        fields = _checked(dict, value)
        return cast("Any", kind)(
            **{name: _built(hint, fields[name]) for name, hint in get_type_hints(kind).items() if name in fields}
        )
    if issubclass(kind, Enum):
        return kind(value)
    return float(value) if kind is float and type(value) is int else _checked(kind, value)


def _checked(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {value!r:.60}")
    return value
