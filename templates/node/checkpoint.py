"""What a directory of weights holds, read from its files' own headers. Standard library only: this runs on nodes.

A safetensors file is 8 bytes (the length of its header, little-endian), the header as JSON, and the bytes of the
tensors. The header gives each tensor `dtype`, `shape` and `data_offsets`, counted from the end of the header; so the
header alone tells how long the file must be. Source: the format's own description, huggingface/safetensors.
"""

from __future__ import annotations

import json
import os
import struct

INDEX = ".safetensors.index.json"
SHARD = ".safetensors"
MARKER = ".sparkops.json"
LENGTH = struct.Struct("<Q")
MAX_HEADER = 100_000_000  # bytes; the format allows no more
NAMED = 3  # tensors that are named of many that are wrong


def header(path):
    """The tensors of a shard by name, and where their bytes begin. Raises ValueError with what is wrong."""
    with open(path, "rb") as file:
        first = file.read(LENGTH.size)
        if len(first) < LENGTH.size:
            raise ValueError("it has no header")
        (length,) = LENGTH.unpack(first)
        if not 0 < length <= MAX_HEADER:
            raise ValueError("it does not begin with a safetensors header")
        text = file.read(length)
    if len(text) < length:
        raise ValueError("it ends within its header")
    try:
        tensors = json.loads(text)
        tensors.pop("__metadata__", None)
        for entry in tensors.values():
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end:
                raise ValueError
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ValueError("its header cannot be read") from None
    return tensors, LENGTH.size + length


def length(tensors, begin):
    """The bytes that a file with this header has."""
    return begin + max((entry["data_offsets"][1] for entry in tensors.values()), default=0)


def weight_map(path):
    """Tensor name to file name, from an index. Raises ValueError with what is wrong."""
    try:
        with open(path, encoding="utf-8") as file:
            weights = json.load(file)["weight_map"]
        if all(isinstance(name, str) and os.path.basename(name) == name for name in weights.values()):
            return weights
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise ValueError("it cannot be read as an index of safetensors files")


def files(directory):
    """Size in bytes and time of change of every file by its path inside the directory; hidden directories are passed.

    What a hub's program keeps in `.cache`, and our own note in a directory that is not whole, are no part of a model.
    """
    sizes = {}
    for place, directories, names in os.walk(directory, followlinks=True):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(place, name)
            if not name.startswith(".sparkops-") and os.path.isfile(path):  # a link that leads nowhere is no file
                status = os.stat(path)
                sizes[os.path.relpath(path, directory)] = [status.st_size, status.st_mtime_ns]
    return sizes


def examine(directory):
    """Everything that is told of one directory: files, shards, index, marker and revision."""
    contents = files(directory)
    tensors, shards = {}, {}
    for name in contents:
        if name.endswith(SHARD):
            try:
                tensors[name], begin = header(os.path.join(directory, name))
                shards[name] = {"bytes": length(tensors[name], begin)}
            except ValueError as error:
                shards[name] = {"error": str(error)}
    return {
        "files": contents,
        "shards": shards,
        "index": index(directory, contents, tensors),
        "marker": marker(directory),
        "revision": revision(directory),
    }


def index(directory, names, tensors):
    """The index held against the shards: None without one."""
    name = next((name for name in names if name.endswith(INDEX) and os.sep not in name), None)
    if name is None:
        return None
    try:
        weights = weight_map(os.path.join(directory, name))
    except ValueError as error:
        return {"file": name, "error": str(error)}
    shards, absent, unnamed = {}, {}, {}
    for tensor, shard in weights.items():
        shards[shard] = shards.get(shard, 0) + 1
        if shard in tensors and tensor not in tensors[shard]:
            count(absent, shard, tensor)
    for shard in shards:
        for tensor in tensors.get(shard, ()):
            if weights.get(tensor) != shard:
                count(unnamed, shard, tensor)
    return {"file": name, "shards": shards, "absent": absent, "unnamed": unnamed}


def count(table, shard, tensor):
    """One more of them; the first few by name."""
    entry = table.setdefault(shard, {"count": 0, "first": []})
    entry["count"] += 1
    if len(entry["first"]) < NAMED:
        entry["first"].append(tensor)


def marker(directory):
    """What sparkops wrote when it made the directory; None where somebody else made it, or it is damaged."""
    try:
        with open(os.path.join(directory, MARKER), encoding="utf-8") as file:
            content = json.load(file)
        return content if isinstance(content, dict) else None
    except (OSError, ValueError):
        return None


def write_marker(directory, content):
    """Leave the marker: `said`, and the size in bytes of every file."""
    sizes = {name: size for name, (size, _) in files(directory).items() if name != MARKER}
    write(os.path.join(directory, MARKER), json.dumps({**content, "files": sizes}, indent=1).encode())


def revision(directory):
    """The commit that the hub's own program noted for config.json, where that was used by hand."""
    note = os.path.join(directory, ".cache", "huggingface", "download", "config.json.metadata")
    try:
        with open(note, encoding="utf-8") as file:
            return file.readline().strip() or None
    except (OSError, ValueError):
        return None


def write(path, content):
    """Write a file so that it is there whole or not at all, and stays there when the power goes."""
    unfinished = os.path.join(os.path.dirname(path), f".sparkops-{os.path.basename(path)}")
    with open(unfinished, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
