"""The model of a JSON body that arrives in parts, beside Python's own reader."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkops.config import shipped

PROGRAM = shipped.PACKAGE.parent / "templates/gateway/program"
TEXTS = st.text(alphabet='ab"\\\n{}[]:,é ', max_size=12) | st.sampled_from(["model", '"model"', "model\\"])
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(TEXTS, children, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def scanner() -> Any:
    """The class of the gateway's program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PROGRAM)
        patch.setattr(sys, "dont_write_bytecode", True)
        scanner_class = importlib.import_module("named").ModelScanner
        del sys.modules["named"]
    return scanner_class


def model(scanner: Any, body: bytes, size: int = 65536) -> str | None:
    """Read a body in parts of `size` bytes."""
    reading = scanner()
    for at in range(0, len(body), size):
        reading.feed(body[at : at + size], last=at + size >= len(body))
    name: str | None = reading.model
    return name


@given(
    before=st.dictionaries(TEXTS.filter(lambda key: key != "model"), VALUES, max_size=3),
    name=st.none() | TEXTS,
    size=st.integers(1, 9),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
def test_the_model_of_any_object_is_that_of_pythons_reader(
    scanner: Any, before: dict[str, Any], name: str | None, size: int, ascii_only: bool, indent: int | None
) -> None:
    whole = {**before, **({} if name is None else {"model": name}), "last": [1]}
    body = json.dumps(whole, ensure_ascii=ascii_only, indent=indent).encode()
    named = json.loads(body).get("model")

    # No service has a name with a quote or a backslash.
    assert model(scanner, body, size) == ("" if named and set(named) & {'"', "\\"} else named)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'["model", "chat"]', None),
        (b'"model": "chat"', None),
        (b'{"model": 5, "x": "chat"}', None),
        (b'{"model": ["chat"], "x": {"model": "chat"}}', None),
        (b'{"a": "model", "b": "chat"}', None),
        (b'{"model": "chat", no JSON', "chat"),
        (b'{"model": "\\ud8"}', ""),
        (b'{"model": "' + b"x" * 1025 + b'"}', None),
        (b'{"a": [{"model": "other"}, "\\\\", "{"], "model" \n:\t "chat"}', "chat"),
        (b'{"a": "\\"model\\": \\"other\\"", "model": "chat"}', "chat"),
        (b'{"model": 5, "model": "chat"}', "chat"),
        (b'{"model": "\xff"}', ""),
        (b"--x\r\nno JSON", None),
        (b"", None),
    ],
)
def test_a_body_without_a_model_names_none(scanner: Any, body: bytes, name: str | None) -> None:
    for size in (1, 2, 65536):
        assert model(scanner, body, size) == name


def test_a_long_text_takes_no_memory(scanner: Any) -> None:
    reading = scanner()
    reading.feed(b'{"' + b"x" * 1_000_000)
    reading.feed(b"y" * 1_000_000)

    assert sum(len(value) for value in vars(reading).values() if isinstance(value, bytes | bytearray)) < 10_000


@pytest.mark.parametrize("unit", [b"[", b"[]", b'"', b'"":', b"\\", b'\\"', b'"model"', b'"model":"",', b'"model":['])
def test_only_a_key_model_costs_a_step_of_the_interpreter(scanner: Any, unit: bytes) -> None:
    """A step for each bracket took 1.8 MiB of a body in a second."""
    reading, steps, part = scanner(), 0, (unit * 65536)[:65536]

    def count(*_: object) -> Any:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        for _ in range(4):
            reading.feed(part)
    finally:
        sys.settrace(before)

    assert reading.model is None
    assert steps < 20 * (4 + 4 * part.count(b'"model":"'))
