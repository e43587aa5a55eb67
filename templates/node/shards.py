"""Shared by the scripts of steps: make a checkpoint from the tensors of others, shard by shard, in little memory.

A step writes into OUTPUT.partial. Shards are written atomically, so an interrupted step resumes at the next one.
Unchanged shards are linked, without disk space and time. No tensor is computed; bytes are copied under new headers.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time

import checkpoint
import partial
import step

CHUNK = 16 * 1024 * 1024
TELL_EVERY_S = 1.0
# Bytes of an element; other types have one or less. A tensor must begin at a multiple of its element.
ELEMENT = {"F64": 8, "I64": 8, "U64": 8, "C64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
INDEX = f"model{checkpoint.INDEX}"


class Tensor:
    """Bytes of one tensor in a file."""

    def __init__(self, path, entry, begin):
        first, last = entry["data_offsets"]
        self.path, self.dtype, self.shape = path, entry["dtype"], entry["shape"]
        self.begin, self.size = begin + first, last - first


class Checkpoint:
    """The tensors of a directory by name, and the shard of each."""

    def __init__(self, directory):
        self.directory, self.tensors, self.shard = directory, {}, {}
        names = sorted(checkpoint.files(directory))
        self.index = next((name for name in names if name.endswith(checkpoint.INDEX)), None)
        weights = checkpoint.weight_map(os.path.join(directory, self.index)) if self.index else None
        files = [name for name in names if name.endswith(checkpoint.SHARD)]
        self.overlooked = sorted(set(files) - set(weights.values())) if weights else []
        for shard in sorted(set(weights.values())) if weights else files:
            self.read(shard, weights)
        lost = set(weights or ()) - set(self.tensors)
        if lost:
            step.refuse(f"{directory} lacks tensors that its index names: {step.named(lost)}")
        if not self.tensors:
            step.refuse(f"{directory} has no tensors")

    def read(self, shard, weights):
        """Read the tensors of one shard; with an index only those that it names there."""
        path = os.path.join(self.directory, shard)
        entries, begin = checkpoint.header(path)
        size, expected = os.path.getsize(path), checkpoint.length(entries, begin)
        if size != expected:
            step.refuse(f"{path} has {size} bytes, expected {expected} by its header")
        for name, entry in entries.items():
            if weights is None or weights.get(name) == shard:
                self.tensors[name], self.shard[name] = Tensor(path, entry, begin), shard

    def read_overlooked(self):
        """Read the shards that the index does not name. Tensors in the index take precedence."""
        for shard in self.overlooked:
            before = dict(self.tensors), dict(self.shard)
            self.read(shard, None)
            self.tensors.update(before[0])
            self.shard.update(before[1])

    def of_shard(self, shard):
        """Return the names of a shard's tensors, in the order of their bytes."""
        names = [name for name, place in self.shard.items() if place == shard]
        return sorted(names, key=lambda name: self.tensors[name].begin)


def begin(*arguments):
    """Read the request of the script, and return its Making."""
    request = step.read_request(*arguments)
    return step.attempt(lambda: Making(request))


class Making:
    """A checkpoint in progress: for each shard, a file to link or the tensors to write."""

    def __init__(self, request):
        self.request, self.output, self.args = request, request["output"], request["args"]
        self.inputs = {word: Checkpoint(path) for word, path in sorted(request["inputs"].items())}
        self.linked, self.written, self.written_bytes = {}, {}, 0

    def take(self, source, shard, name=None):
        """Link a shard of an input unchanged."""
        self.linked[name or shard] = (os.path.join(source.directory, shard), source.of_shard(shard))

    def write(self, shard, tensors):
        """Write a shard from these tensors by name."""
        self.written[shard] = tensors

    def run(self, base, edit):
        """Make the checkpoint. `edit` changes the config of the base; other files are copies of the base's."""
        marker = {**self.request["marker"], "inputs": self.digest()}
        handle = partial.claim(self.output, f"step {marker['made']} {marker['inputs']}")
        self.make_room()
        for shard, (path, _) in sorted(self.linked.items()):
            partial.keep(os.path.realpath(path), os.path.join(self.output, shard))
        for shard, tensors in sorted(self.written.items()):
            self.make_shard(shard, tensors)
        self.describe(base, edit)
        checkpoint.write_marker(self.output, marker)
        os.close(handle)
        step.say(f"{len(self.linked)} shards linked, {len(self.written)} written")

    def digest(self):
        """Return one sha256 over the inputs: names, sizes and times of all files, and the text of .json files."""
        digest = hashlib.sha256()
        for word, source in sorted(self.inputs.items()):
            for name, facts in sorted(checkpoint.files(source.directory).items()):
                digest.update(f"{word} {name} {facts}\n".encode())
                if name.endswith(".json"):
                    with open(os.path.join(source.directory, name), "rb") as file:
                        digest.update(file.read())
        return digest.hexdigest()

    def make_room(self):
        """Refuse before the disk is full."""
        self.total = sum(tensor.size for shard in self.written.values() for tensor in shard.values())
        present = sum(os.path.getsize(path) for path in map(self.place, self.written) if os.path.exists(path))
        free = shutil.disk_usage(self.output).free
        if self.total - present > free:
            step.refuse(f"the disk is too small: {self.total - present} bytes to write, {free} free")

    def place(self, shard):
        return os.path.join(self.output, shard)

    def make_shard(self, shard, tensors):
        """Write one shard, unless it exists."""
        size = sum(tensor.size for tensor in tensors.values())
        if not os.path.exists(self.place(shard)):
            unfinished = os.path.join(self.output, f".sparkops-{shard}")
            with open(unfinished, "wb") as file:
                self.fill(file, tensors)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, self.place(shard))
            step.say(f"{shard} is written")
        else:
            self.written_bytes += size
        step.report(bytes=self.written_bytes, total=self.total)

    def fill(self, file, tensors):
        """Write header and bytes. Large elements come first, so that every tensor is aligned to its elements."""
        order = sorted(tensors, key=lambda name: -ELEMENT.get(tensors[name].dtype, 1))
        table, at = {"__metadata__": {"format": "pt"}}, 0
        for name in order:
            tensor = tensors[name]
            table[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, at + tensor.size]}
            at += tensor.size
        text = json.dumps(table, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        file.write(checkpoint.LENGTH.pack(len(text)) + text)
        for name in order:
            self.pour(file, tensors[name])

    def pour(self, file, tensor):
        reported_at, remaining = time.monotonic(), tensor.size
        with open(tensor.path, "rb") as source:
            source.seek(tensor.begin)
            while remaining:
                piece = source.read(min(CHUNK, remaining))
                if not piece:
                    step.refuse(f"{tensor.path} was truncated while it was read")
                file.write(piece)
                remaining -= len(piece)
                self.written_bytes += len(piece)
                if time.monotonic() - reported_at > TELL_EVERY_S:
                    reported_at = time.monotonic()
                    step.report(bytes=self.written_bytes, total=self.total)

    def describe(self, base, edit):
        """Write the files beside the shards. They are copied, not linked: an operator may edit them."""
        for name in checkpoint.files(base.directory):
            skipped = name.endswith((checkpoint.SHARD, checkpoint.INDEX)) or name in ("config.json", checkpoint.MARKER)
            if not skipped:
                os.makedirs(os.path.dirname(self.place(name)), exist_ok=True)
                shutil.copyfile(os.path.join(base.directory, name), self.place(name))
        config = checkpoint.read(os.path.join(base.directory, "config.json"))
        edit(config)
        dump(self.place("config.json"), merged(config, self.args.get("config", {})))
        dump(self.place(base.index or INDEX), self.index())

    def index(self):
        """Return the index, read from the written shards."""
        weight_map, size = {}, 0
        for shard, names in [(s, n) for s, (_, n) in self.linked.items()] + list(self.written.items()):
            entries, _ = checkpoint.header(self.place(shard))
            for name in names:
                first, last = entries[name]["data_offsets"]
                weight_map[name], size = shard, size + last - first
        return {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}


def merged(value, patch):
    """Apply a patch to a JSON value: mappings are merged, null removes a key, other values are replaced (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), change)
    return result


def dump(path, value):
    checkpoint.write(path, (json.dumps(value, indent=2) + "\n").encode())
