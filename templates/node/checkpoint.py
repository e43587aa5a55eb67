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
MEBI = 2**20
# Bytes. The format allows 100 MB; Python takes 13 times a header's size, and a Spark shares its memory with the engine.
# 200,000 tensors in one file are 16 MiB; an index of 200,000 tensors, which Kimi K2 has, is 21 MB.
MAX_HEADER = 16 * MEBI
MAX_INDEX = 32 * MEBI
MAX_JSON = 16 * MEBI
NAMED = 3  # wrong tensors that are listed by name


def header(path):
    """Return the tensors of a shard by name, and the offset of their bytes. Raises ValueError for a damaged file."""
    with open(path, "rb") as file:
        first = file.read(LENGTH.size)
        if len(first) < LENGTH.size:
            raise ValueError("safetensors header missing")
        (length,) = LENGTH.unpack(first)
        if not 0 < length <= MAX_HEADER:
            raise ValueError(f"expected a safetensors header at the start, of up to {MAX_HEADER // MEBI} MiB")
        text = file.read(length)
    if len(text) < length:
        raise ValueError("safetensors header truncated")
    try:
        tensors = loads(text)
        tensors.pop("__metadata__", None)
        for entry in tensors.values():
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end:
                raise ValueError
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ValueError("invalid safetensors header") from None
    return tensors, LENGTH.size + length


def loads(text):
    """Return parsed JSON. Raises ValueError, also for text that is nested more deeply than Python reads."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read(path, most=MAX_JSON):
    """Return the content of a JSON file of up to `most` bytes. Raises ValueError."""
    with open(path, "rb") as file:
        text = file.read(most + 1)
    if len(text) > most:
        raise ValueError(f"larger than {most // MEBI} MiB")
    return loads(text)


def length(tensors, begin):
    """Return the bytes of a file with this header."""
    return begin + max((entry["data_offsets"][1] for entry in tensors.values()), default=0)


def weight_map(path):
    """Return the file name of each tensor, from an index. Raises ValueError for a damaged index."""
    try:
        weights = read(path, MAX_INDEX)["weight_map"]
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
    """Return files, shards, index, marker and revision of a directory. One header is in memory at a time."""
    contents = files(directory)
    index, shards = Index(directory, contents), {}
    for name in contents:
        if name.endswith(SHARD):
            try:
                tensors, begin = header(os.path.join(directory, name))
                shards[name] = {"bytes": length(tensors, begin)}
                index.compare(name, tensors)
            except ValueError as error:
                shards[name] = {"error": str(error)}
    return {
        "files": contents,
        "shards": shards,
        "index": index.report(),
        "marker": marker(directory),
        "revision": revision(directory),
    }


class Index:
    """The index of a directory, compared with its shards one after the other."""

    def __init__(self, directory, names):
        self.file = next((name for name in names if name.endswith(INDEX) and os.sep not in name), None)
        self.error, self.weights, self.named, self.absent, self.unnamed = "", {}, {}, {}, {}
        try:
            self.weights = weight_map(os.path.join(directory, self.file)) if self.file else {}
        except ValueError as error:
            self.error = str(error)
        for tensor, shard in self.weights.items():
            self.named.setdefault(shard, []).append(tensor)

    def compare(self, shard, tensors):
        """Count the tensors that only one of the two has."""
        for tensor in self.named.get(shard, ()):
            if tensor not in tensors:
                count(self.absent, shard, tensor)
        for tensor in tensors if shard in self.named else ():
            if self.weights.get(tensor) != shard:
                count(self.unnamed, shard, tensor)

    def report(self):
        """Return the comparison; None without an index."""
        if self.file is None:
            return None
        if self.error:
            return {"file": self.file, "error": self.error}
        shards = {shard: len(tensors) for shard, tensors in self.named.items()}
        return {"file": self.file, "shards": shards, "absent": self.absent, "unnamed": self.unnamed}


def count(table, shard, tensor):
    """Count a tensor of a shard; the first few by name."""
    entry = table.setdefault(shard, {"count": 0, "first": []})
    entry["count"] += 1
    if len(entry["first"]) < NAMED:
        entry["first"].append(tensor)


def marker(directory):
    """Return the marker that sparkops wrote into the directory; None without a readable one."""
    try:
        content = read(os.path.join(directory, MARKER))
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
            return file.readline(200).strip() or None
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
