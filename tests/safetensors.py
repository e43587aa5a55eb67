"""Tiny checkpoints in the safetensors format, written by hand: headers, shards and an index."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "I32": 4}


def tensor(dtype: str, shape: list[int], fill: int = 1) -> tuple[str, list[int], bytes]:
    """A tensor whose every byte is `fill`."""
    count = BYTES[dtype]
    for size in shape:
        count *= size
    return dtype, shape, bytes([fill]) * count


Tensors = Mapping[str, tuple[str, list[int], bytes]]


def shard(path: Path, tensors: Tensors) -> None:
    """Write one file."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, content) in tensors.items():
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
    text = json.dumps(table).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(content for *_, content in tensors.values()))


def checkpoint(directory: Path, shards: Mapping[str, Tensors], config: Mapping[str, Any] | None = None) -> Path:
    """Write shards, their index, a config and a tokenizer."""
    directory.mkdir(parents=True)
    for name, tensors in shards.items():
        shard(directory / name, tensors)
    weight_map = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (directory / "config.json").write_text(json.dumps(config or {"model_type": "tiny"}))
    (directory / "tokenizer.json").write_text('{"a": 1}')
    return directory


def two_shards(directory: Path, fill: int = 1) -> Path:
    """A checkpoint of two shards with two layers each."""
    return checkpoint(
        directory,
        {
            f"model-{number}-of-2.safetensors": {
                f"layers.{number}.{part}.weight": tensor("BF16", [4, 8], fill) for part in ("up", "down")
            }
            for number in (1, 2)
        },
    )


def read(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """The tensors of a file, held against the format: the header is aligned, and the bytes lie without a gap."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    table = json.loads(content[8 : 8 + length])
    table.pop("__metadata__")
    data, at = content[8 + length :], 0
    tensors = {}
    for name, entry in sorted(table.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        assert begin == at
        assert begin % BYTES[entry["dtype"]] == 0
        tensors[name], at = (entry["dtype"], entry["shape"], data[begin:end]), end
    assert at == len(data)
    return tensors


def read_all(directory: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """The tensors of a checkpoint as an engine finds them: by the index."""
    weight_map = json.loads((directory / "model.safetensors.index.json").read_text())["weight_map"]
    shards = {name: read(directory / name) for name in set(weight_map.values())}
    return {name: shards[file][name] for name, file in weight_map.items()}
