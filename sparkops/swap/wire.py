"""The values of a swap as JSON, on disk and between guards. The only parser of this package."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from sparkops.errors import SparkopsError
from sparkops.swap.journal import SCHEMA

Value = TypeVar("Value")


class WireError(SparkopsError):
    """A message or file that this version cannot read."""


def dump(kind: type[Value], value: Value) -> bytes:
    """Write a value as JSON."""
    return _adapter(kind).dump_json(value)


def plain(kind: type[Value], value: Value) -> Any:
    """Return the value as JSON types."""
    return _adapter(kind).dump_python(value, mode="json")


def load(kind: type[Value], text: bytes) -> Value:
    """Read a value. Raises WireError for a broken value, another kind, or one of a newer version."""
    try:
        value: Value = _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise WireError(f"{kind.__name__}: {where}: {first['msg']}") from None
    if (schema := getattr(value, "schema", SCHEMA)) > SCHEMA:
        step = "Use the version of sparkops that last deployed to this fleet, or a newer one."
        raise WireError(f"{kind.__name__}: schema {schema}; expected up to {SCHEMA}", next_step=step)
    return value


def load_value(kind: type[Value], parsed: Any) -> Value:
    """Read a value from a message whose JSON is parsed already. Raises WireError as `load` does."""
    return load(kind, json.dumps(parsed).encode())


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
