"""The values of a swap as JSON, on disk and between guards. The only parser of this package.

Here two formats meet: journals, guards and gateways of another format than SCHEMA are refused, and nothing is read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from sparkops.errors import PlanRefused, SparkopsError
from sparkops.swap.journal import SCHEMA

Value = TypeVar("Value")
UNKNOWN = "the guard does not understand"
"""How a guard's reply begins to a request that its version does not know."""


class WireError(SparkopsError):
    """A message or file that this version cannot read."""


class OtherFormat(WireError):
    """A journal, guard or gateway of another format."""

    exit_code = PlanRefused.exit_code


def require_format(name: str, found: int) -> None:
    """Raise OtherFormat unless what this version reads, `name`, has its format."""
    if found != SCHEMA:
        step = _step(found, SCHEMA, "the version that wrote it")
        raise OtherFormat(f"{name} has format {found}, expected {SCHEMA}", next_step=step)


def require_client(found: int, version: str) -> None:
    """Raise OtherFormat unless a client of this guard, of `version`, has its format. The client prints the error."""
    if found != SCHEMA:
        problem = f"the guard is of sparkops {version} and format {SCHEMA}; this client has format {found}"
        raise OtherFormat(problem, next_step=_step(SCHEMA, found, f"version {version}"))


def _step(found: int, own: int, version: str) -> str:
    """Return the next step of an operator whose sparkops has format `own` and finds a format of another `version`."""
    if found > own:
        return f"Update sparkops on this machine to {version} or newer."
    return f"With {version}: sparkops stop SERVICE; sparkops node uninstall NODE. Then deploy with this one."


def dump(kind: type[Value], value: Value) -> bytes:
    """Write a value as JSON."""
    return _adapter(kind).dump_json(value)


def plain(kind: type[Value], value: Value) -> Any:
    """Return the value as JSON types."""
    return _adapter(kind).dump_python(value, mode="json")


def load(kind: type[Value], text: bytes) -> Value:
    """Read a value. Raises WireError for a broken value or another kind, and OtherFormat."""
    try:
        value: Value = _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        require_format(kind.__name__, _stated(text))
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise WireError(f"{kind.__name__}: {where}: {first['msg']}") from None
    require_format(kind.__name__, getattr(value, "schema", SCHEMA))
    return value


@dataclass(frozen=True)
class _Stated:
    """The format that a value of any kind states."""

    schema: int = SCHEMA


def _stated(text: bytes) -> int:
    """Return the format that an unreadable value states; this version's for one that states none."""
    try:
        stated: _Stated = _adapter(_Stated).validate_json(text, strict=True)
    except ValidationError:
        return SCHEMA
    return stated.schema


def load_value(kind: type[Value], parsed: Any) -> Value:
    """Read a value from a message whose JSON is parsed already. Raises WireError as `load` does."""
    return load(kind, json.dumps(parsed).encode())


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
