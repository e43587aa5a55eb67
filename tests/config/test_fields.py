"""The kinds of value that a recipe or inventory may hold, at their limits."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sparkops.config.fields import Argument, Line, Name, Port, RelativePath, Section, Text, as_name


class Sample(Section):
    name: Name = "a"
    port: Port = 1
    text: Text = "a"
    line: Line = "a"
    path: RelativePath = "a"
    argument: Argument = 1


@pytest.mark.parametrize(
    "data",
    [
        {"name": "a" * 63},
        {"port": 1},
        {"port": 65535},
        {"text": "a\nb"},
        {"line": "a"},
        {"path": "a/..b/c"},
        {"argument": {"a": [1, 0.5, True, "x"]}},
    ],
    ids=str,
)
def test_the_last_value_that_fits_is_kept(data: dict[str, Any]) -> None:
    assert Sample.model_validate(data).model_dump(include=set(data)) == data


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"name": "a" * 64}, "a name of at most 63"),
        ({"name": ""}, "a name of at most 63"),
        ({"name": "a b"}, "a name of at most 63"),
        ({"port": 0}, "greater than or equal to 1"),
        ({"port": 65536}, "less than or equal to 65535"),
        ({"port": "8000"}, "valid integer"),
        ({"text": ""}, "at least 1 character"),
        ({"line": ""}, "at least 1 character"),
        ({"line": "a\u200bb"}, "one line of visible text"),
        ({"path": ""}, "at least 1 character"),
        ({"path": "/a"}, "a relative path"),
        ({"path": "a/.."}, "a relative path"),
        ({"path": "a\nb"}, "one line of visible text"),
        ({"argument": None}, "remove the key"),
        ({"argument": {"a": [None]}}, "remove the key"),
        ({"argument": {"a\nb": 1}}, "one line of visible text"),
        ({"argument": ["$(id)"]}, "a plain value"),
        ({"argument": "a\nb"}, "one line of visible text"),
    ],
    ids=str,
)
def test_the_first_value_that_does_not_fit_is_refused(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Sample.model_validate(data)


def test_a_section_cannot_be_changed() -> None:
    sample = Sample()

    with pytest.raises(ValidationError, match="frozen"):
        sample.port = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("prot", "unknown key, did you mean 'port'?"),
        ("argu", "unknown key, did you mean 'argument'?"),
        ("axxxxx", "unknown key, expected one of: name, port, text, line, path, argument"),
    ],
)
def test_an_unknown_key_has_the_nearest_one_as_its_hint(key: str, hint: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Sample.model_validate({key: 1})

    assert [error["msg"] for error in refused.value.errors()] == [hint]


@pytest.mark.parametrize(
    ("text", "name"),
    [("Qwen/Qwen3.5 122B", "qwen-qwen3.5-122b"), ("-.a.-", "a"), ("A__b", "a-b"), ("a" * 70, "a" * 63), ("", "")],
)
def test_a_name_is_made_of_any_text(text: str, name: str) -> None:
    assert as_name(text) == name
