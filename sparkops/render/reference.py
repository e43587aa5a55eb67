"""The reference of a model as Markdown, from its types, defaults and docstrings."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from sparkops.config import fields

WORDS: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    fields.one_line: "one line of text",
    fields.literal: "text without $(...)",
    fields.relative_path: "relative path without .. or colon",
    fields.local_path: "path",
    fields.url: fields.URL_WORDS,
    fields.argument: "text, number, true, false, list or mapping",
}
HEAD = "| key | what it is | default | meaning |\n| --- | --- | --- | --- |"


def reference(model: type[BaseModel]) -> str:
    """One table for the model and one for each model inside it, in the order of their keys."""
    title = f"# {model.__name__}\n\n{inspect.getdoc(model)}"
    parts = [title, _table(model)]
    for path, inner in _inside(model, ""):
        parts += [f"## {path}\n\n{inspect.getdoc(inner)}", _table(inner)]
    return "\n\n".join(parts) + "\n"


def described(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Every field of the model with its meaning; empty where nobody wrote one."""
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        yield name, field.description or (inspect.getdoc(section) or "" if section else "")


def _inside(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        if section := _section(field.annotation):
            inner = f"{path}{name}{_mark(field.annotation)}"
            yield inner, section
            yield from _inside(section, f"{inner}.")


def _section(kind: Any) -> type[BaseModel] | None:
    """The model that a type holds: itself, or in a list, a mapping or beside null."""
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        return kind
    return next((found for each in get_args(kind) if (found := _section(each))), None)


def _mark(kind: Any) -> str:
    """How a path goes through a list or a mapping: nodes.NAME, services[]."""
    return {list: "[]", dict: ".NAME"}.get(get_origin(kind), "")


def _table(model: type[BaseModel]) -> str:
    meanings = dict(described(model))
    rows = [
        f"| `{name}` | {_field_words(field)} | {_default(field)} | {_cell(meanings[name])} |"
        for name, field in model.model_fields.items()
    ]
    return "\n".join([HEAD, *rows])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    given = field.get_default(call_default_factory=True)
    value = _plain(given)
    if value is None or (isinstance(given, BaseModel) and not value):
        return "-"
    return f"`{_cell(json.dumps(value, ensure_ascii=False))}`"


def _plain(value: Any) -> Any:
    """A default as YAML would hold it; of a model only what differs from its own defaults."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _field_words(field: FieldInfo) -> str:
    words = _words(field.annotation, field.metadata)
    optional = NoneType in get_args(field.annotation)
    return _cell(f"{words} or null" if optional and field.is_required() else words)


def _words(kind: Any, metadata: Iterable[Any] = ()) -> str:
    """A type in words. What a validator says is closer than the type itself."""
    said = next((words for each in metadata if (words := _said(each))), "")
    if said:
        return said
    if origin := get_origin(kind):
        return _compound(origin, get_args(kind))
    if issubclass(kind, BaseModel):
        return "mapping"
    if issubclass(kind, Enum):
        return _choice(each.value for each in kind)
    return " ".join([WORDS[kind], *_limits(metadata)])


def _compound(origin: Any, inner: tuple[Any, ...]) -> str:
    if origin is Annotated:
        return _words(inner[0], inner[1:])
    if origin is Literal:
        return _choice(inner)
    words = [_words(each) for each in inner if each is not NoneType]
    if origin is list:
        return f"list: {words[0]}"
    return f"mapping: {words[0]} to {words[1]}" if origin is dict else " or ".join(words)


def _choice(values: Iterable[object]) -> str:
    return " or ".join(f"`{each}`" for each in values)


def _said(validator: Any) -> str:
    check = validator.func if isinstance(validator, AfterValidator) else None
    return check.words if isinstance(check, fields.Matching) else WORDS.get(check, "")


def _limits(metadata: Iterable[Any]) -> Iterator[str]:
    for each in metadata:
        for limit in getattr(each, "metadata", [each]):  # a Field inside Annotated carries a list of them
            match limit:
                case annotated_types.Gt(low):
                    yield f"above {low}"
                case annotated_types.Ge(low):
                    yield f"from {low}"
                case annotated_types.Le(high):
                    yield f"to {high}"
                case _:
                    pass
