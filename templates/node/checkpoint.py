"""Read the contents of a model directory from its files' headers. Standard library only: this runs on nodes.

A safetensors file is 8 bytes (the length of its header, little-endian), the header as JSON, and the bytes of the
tensors. The header has `dtype`, `shape` and `data_offsets` of each tensor, counted from the end of the header, and so
determines the length of the file. Source: the format's description, huggingface/safetensors.
"""

from __future__ import annotations

import json
import os
import struct

INDEX = ".safetensors.index.json"
SHARD = ".safetensors"
MARKER = ".sparkops.json"
LENGTH = struct.Struct("<Q")
MAX_HEADER = 100_000_000  # bytes; the format's limit
NAMED = 3  # wrong tensors that are listed by name


def header(path):
    """Return the tensors of a shard by name, and the offset of their bytes. Raises ValueError for a damaged file."""
    with open(path, "rb") as file:
        first = file.read(LENGTH.size)
        if len(first) < LENGTH.size:
            raise ValueError("safetensors header missing")
        (length,) = LENGTH.unpack(first)
        if not 0 < length <= MAX_HEADER:
            raise ValueError("expected a safetensors header at the start")
        text = file.read(length)
    if len(text) < length:
        raise ValueError("safetensors header truncated")
    try:
        tensors = json.loads(text)
        tensors.pop("__metadata__", None)
        for entry in tensors.values():
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end:
                raise ValueError
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ValueError("invalid safetensors header") from None
    return tensors, LENGTH.size + length


def length(tensors, begin):
    """Return the bytes of a file with this header."""
    return begin + max((entry["data_offsets"][1] for entry in tensors.values()), default=0)


def weight_map(path):
    """Return the file name of each tensor, from an index. Raises ValueError for a damaged index."""
    try:
        with open(path, encoding="utf-8") as file:
            weights = json.load(file)["weight_map"]
        if all(isinstance(name, str) and os.path.basename(name) == name for name in weights.values()):
            return weights
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise ValueError("expected an index of safetensors files")


def files(directory):
    """Return size in bytes and time of change of every file by relative path, without hidden directories.

    The `.cache` of a hub's program, and the note of sparkops in a partial directory, are not part of a model.
    """
    sizes = {}
    above = {directory: {os.path.realpath(directory)}}
    for place, directories, names in os.walk(directory, followlinks=True):
        around = above.pop(place)
        real = {name: os.path.realpath(os.path.join(place, name)) for name in directories if not name.startswith(".")}
        directories[:] = sorted(name for name, path in real.items() if path not in around)  # a link upwards has no end
        above.update({os.path.join(place, name): around | {real[name]} for name in directories})
        for name in sorted(names):
            path = os.path.join(place, name)
            if not name.startswith(".sparkops-") and os.path.isfile(path):  # False for a dangling link
                status = os.stat(path)
                sizes[os.path.relpath(path, directory)] = [status.st_size, status.st_mtime_ns]
    return sizes


def examine(directory):
    """Return files, shards, index, marker and revision of a directory."""
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
    """Return the index compared with the shards; None without an index."""
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
    """Count a tensor of a shard; the first few by name."""
    entry = table.setdefault(shard, {"count": 0, "first": []})
    entry["count"] += 1
    if len(entry["first"]) < NAMED:
        entry["first"].append(tensor)


def marker(directory):
    """Return the marker that sparkops wrote into the directory; None without a readable one."""
    try:
        with open(os.path.join(directory, MARKER), encoding="utf-8") as file:
            content = json.load(file)
        return content if isinstance(content, dict) else None
    except (OSError, ValueError):
        return None


def write_marker(directory, content):
    """Write the marker: `content`, and the size in bytes of every file."""
    sizes = {name: size for name, (size, _) in files(directory).items() if name != MARKER}
    write(os.path.join(directory, MARKER), json.dumps({**content, "files": sizes}, indent=1).encode())


def revision(directory):
    """Return the commit that the hub's own program recorded for config.json; None without one."""
    note = os.path.join(directory, ".cache", "huggingface", "download", "config.json.metadata")
    try:
        with open(note, encoding="utf-8") as file:
            return file.readline().strip() or None
    except (OSError, ValueError):
        return None


def write(path, content):
    """Write a file atomically, safe from a power cut."""
    unfinished = os.path.join(os.path.dirname(path), f".sparkops-{os.path.basename(path)}")
    with open(unfinished, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
