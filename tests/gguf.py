"""Read a GGUF file: what it says of a model, and its tensors."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

Tensors = Mapping[str, tuple[tuple[int, ...], str, bytes]]
NUMBERS = {4: "<I", 5: "<i", 6: "<f", 10: "<Q"}
KINDS = {0: ("F32", 4), 1: ("F16", 2), 30: ("BF16", 2)}
ALIGNMENT = 32


def read(path: Path) -> tuple[Mapping[str, Any], Tensors]:
    """Return the values by name, and shape, type and bytes of each tensor."""
    content = path.read_bytes()
    file = BytesIO(content)
    assert file.read(4) == b"GGUF"
    version, count, pairs = struct.unpack("<IQQ", file.read(20))
    assert version == 3
    values = {_text(file): _value(file, _number(file, "<I")) for _ in range(pairs)}
    heads = []
    for _ in range(count):
        name, dimensions = _text(file), _number(file, "<I")
        shape = tuple(_number(file, "<Q") for _ in range(dimensions))
        heads.append((name, shape, _number(file, "<I"), _number(file, "<Q")))
    begin = file.tell() + -file.tell() % ALIGNMENT
    tensors = {}
    for name, shape, kind, at in heads:
        word, size = KINDS[kind]
        tensors[name] = (shape, word, content[begin + at : begin + at + prod(shape) * size])
    return values, tensors


def _number(file: BytesIO, form: str) -> Any:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]


def _text(file: BytesIO) -> str:
    return file.read(_number(file, "<Q")).decode()


def _value(file: BytesIO, kind: int) -> Any:
    if kind == 8:
        return _text(file)
    if kind == 9:
        of, count = _number(file, "<I"), _number(file, "<Q")
        return [_value(file, of) for _ in range(count)]
    return _number(file, NUMBERS[kind])
