"""The reference of a model as Markdown, from its types, defaults and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache, reduce
from itertools import pairwise
from operator import or_
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, cast, get_args, get_origin, get_type_hints

import annotated_types
from pydantic import AfterValidator, BaseModel, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

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
MARKS: Mapping[Any, str] = {list: "[]", dict: ".NAME"}
"""The parts of a path for a list and a mapping: nodes.NAME, services[]."""
HEAD = "| key | type | default | meaning |\n| --- | --- | --- | --- |"


class Row(BaseModel):
    """A dataclass as a model, for its schema and reference. `dataclass` has the docstrings of its fields."""

    dataclass: ClassVar[type]


@cache
def as_model(row: type) -> type[BaseModel]:
    """Return the model of a dataclass, with the models of those inside it."""
    hints = get_type_hints(row)
    definitions: dict[str, Any] = {item.name: (_modelled(hints[item.name]), item) for item in dataclasses.fields(row)}
    model = create_model(row.__name__, __doc__=row.__doc__, __base__=Row, **definitions)
    model.dataclass = row
    return model


def _modelled(kind: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        return as_model(cast("type", kind))
    inner = get_args(kind)
    if not inner or get_origin(kind) is Literal:
        return kind
    kinds = tuple(map(_modelled, inner))
    return reduce(or_, kinds) if NoneType in inner else get_origin(kind)[kinds]


def reference(model: type[BaseModel]) -> str:
    """Return a table for the model and one for each model inside it, in the order of their keys."""
    parts = [f"# {model.__name__}\n\n{inspect.getdoc(model)}", _table(model, model.model_fields)]
    parts += _sections(model, "", {})
    return "\n\n".join(parts) + "\n"


def _sections(model: type[BaseModel], path: str, listed: dict[tuple[type[BaseModel], str], str]) -> Iterator[str]:
    """Yield the heading and table of each model inside one. `listed`: the section of each key that has a row.

    A key that several models inherit, or of a model that is used several times, has one row: in the first section.
    """
    for name, field in model.model_fields.items():
        if not (section := _section(field.annotation)):
            continue
        inner = path + name + MARKS.get(get_origin(field.annotation), "")
        owners = {key: (_owner(section, key), key) for key in section.model_fields}
        own = [key for key, owner in owners.items() if owner not in listed]
        yield f"## {inner}\n\n{inspect.getdoc(section)}"
        if own:
            yield _table(section, own)
        else:
            first = ", ".join(dict.fromkeys(f"`{listed[owner]}`" for owner in owners.values()))
            yield f"As in {first}: {', '.join(f'`{key}`' for key in owners)}."
        listed |= {owners[key]: inner for key in own}
        if own or not owners:
            yield from _sections(section, f"{inner}.", listed)


def _owner(model: type[BaseModel], key: str) -> type[BaseModel]:
    """Return the class that declares a key, of a model and those that it inherits from."""
    return next(cls for cls in model.__mro__ if key in inspect.get_annotations(cls))


class DocumentedSchema(GenerateJsonSchema):
    """A generator of JSON Schema that describes fields by their docstrings.

    pydantic would read the source at every start to do so (use_attribute_docstrings), for half of a model's time.
    """

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of one model with the meanings of its fields."""
        json_schema = super().model_schema(schema)
        meanings = _docstrings(schema["cls"])
        for name, field in json_schema.get("properties", {}).items():
            if name in meanings:
                field.setdefault("description", meanings[name])
        return json_schema


def described(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield every field of the model with its meaning; empty without a docstring."""
    docstrings = _docstrings(model)
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        yield name, docstrings.get(name) or (inspect.getdoc(section) or "" if section else "")


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring below each field that has one, in the model and in those that it inherits from."""
    classes = [cls for cls in model.__mro__ if issubclass(cls, BaseModel) and cls is not BaseModel]
    return {name: text for cls in reversed(classes) for name, text in _own_docstrings(cls)}


def _own_docstrings(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    source = inspect.getsource(getattr(model, "dataclass", model))
    [definition] = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 - the source of a class
    for statements in pairwise(definition.body):
        match statements:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
            case _:
                pass


def _section(kind: Any) -> type[BaseModel] | None:
    """Return the model in a type: itself, or in a list, a mapping or beside null."""
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        return kind
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):  # Memory of a status, in a model of doctor
        return as_model(kind)
    return next(filter(None, map(_section, get_args(kind))), None)


def _table(model: type[BaseModel], keys: Iterable[str]) -> str:
    meanings = dict(described(model))
    shown = {name: model.model_fields[name] for name in keys}
    rows = [
        f"| `{name}` | {_field_words(field)} | {_default(field)} | {_cell(meanings[name])} |"
        for name, field in shown.items()
    ]
    return "\n".join([HEAD, *rows])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    value = _plain(default)
    if value is None or (isinstance(default, BaseModel) and not value):
        return "-"
    return f"`{_cell(json.dumps(value, ensure_ascii=False))}`"


def _plain(value: Any) -> Any:
    """Return a default as in YAML; of a model only the values that differ from its own defaults."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _field_words(field: FieldInfo) -> str:
    words = _words(field.annotation, field.metadata)
    optional = NoneType in get_args(field.annotation)
    return _cell(f"{words} or null" if optional and field.is_required() else words)


def _words(kind: Any, metadata: Iterable[Any] = ()) -> str:
    """Return a type in words. The words of a validator take precedence over the type."""
    if text := next(filter(None, map(_validator_words, metadata)), ""):
        return text
    if origin := get_origin(kind):
        return _compound(origin, get_args(kind))
    if issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind):
        return "mapping"
    if issubclass(kind, Enum):
        return _choice(member.value for member in kind)
    return " ".join([WORDS[kind], *_limits(metadata)])


def _compound(origin: Any, inner: tuple[Any, ...]) -> str:
    if origin is Annotated:
        return _words(inner[0], inner[1:])
    if origin is Literal:
        return _choice(inner)
    words = [_words(part) for part in inner if part is not NoneType]
    if origin is list:
        return f"list: {words[0]}"
    return f"mapping: {words[0]} to {words[1]}" if origin is dict else " or ".join(words)


def _choice(values: Iterable[object]) -> str:
    return " or ".join(f"`{value}`" for value in values)


def _validator_words(validator: Any) -> str:
    check = validator.func if isinstance(validator, AfterValidator) else None
    return check.words if isinstance(check, fields.Matching) else WORDS.get(check, "")


def _limits(metadata: Iterable[Any]) -> Iterator[str]:
    for item in metadata:
        for limit in getattr(item, "metadata", [item]):  # a Field inside Annotated carries a list of them
            match limit:
                case annotated_types.Gt(low):
                    yield f"above {low}"
                case annotated_types.Ge(low):
                    yield f"from {low}"
                case annotated_types.Le(high):
                    yield f"to {high}"
                case _:
                    pass
