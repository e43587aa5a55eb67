"""What the scripts of steps share: a new checkpoint out of the tensors of others, shard by shard, in little memory.

A step writes into OUTPUT.partial. A shard is there whole or not at all, so a step that was interrupted goes on with
the next one. Shards that stay as they are take no room and no time: they are linked. No tensor is computed; bytes are
copied under new headers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import sys
import threading
import time

import checkpoint
import partial

CHUNK = 16 * 1024 * 1024
TELL_EVERY_S = 1.0
INTERRUPTED = 130
# Bytes of an element; what is not here has one or less. A tensor must begin at a multiple of its element.
ELEMENT = {"F64": 8, "I64": 8, "U64": 8, "C64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
INDEX = f"model{checkpoint.INDEX}"
NAMED = 3


class Tensor:
    """Bytes of one tensor in a file."""

    def __init__(self, path, entry, begin):
        first, last = entry["data_offsets"]
        self.path, self.dtype, self.shape = path, entry["dtype"], entry["shape"]
        self.begin, self.size = begin + first, last - first


class Checkpoint:
    """The tensors of a directory by name, and the shard that holds each."""

    def __init__(self, directory):
        self.directory, self.tensors, self.shard = directory, {}, {}
        names = sorted(checkpoint.files(directory))
        self.index = next((name for name in names if name.endswith(checkpoint.INDEX)), None)
        wanted = checkpoint.weight_map(os.path.join(directory, self.index)) if self.index else None
        found = [name for name in names if name.endswith(checkpoint.SHARD)]
        self.overlooked = sorted(set(found) - set(wanted.values())) if wanted else []
        for shard in sorted(set(wanted.values())) if wanted else found:
            self.read(shard, wanted)
        lost = set(wanted or ()) - set(self.tensors)
        if lost:
            refuse(f"{directory} lacks tensors that its index names: {named(lost)}")
        if not self.tensors:
            refuse(f"{directory} holds no tensors")

    def read(self, shard, wanted):
        """The tensors of one shard; with an index only those that it names there."""
        path = os.path.join(self.directory, shard)
        found, begin = checkpoint.header(path)
        if os.path.getsize(path) != checkpoint.length(found, begin):
            refuse(f"{path} is not as long as its header says")
        for name, entry in found.items():
            if wanted is None or wanted.get(name) == shard:
                self.tensors[name], self.shard[name] = Tensor(path, entry, begin), shard

    def read_overlooked(self):
        """Also the shards that the index does not name. What it names goes before."""
        for shard in self.overlooked:
            before = dict(self.tensors), dict(self.shard)
            self.read(shard, None)
            self.tensors.update(before[0])
            self.shard.update(before[1])

    def of_shard(self, shard):
        """The names of a shard's tensors, in the order of their bytes."""
        names = [name for name, held in self.shard.items() if held == shard]
        return sorted(names, key=lambda name: self.tensors[name].begin)


class Making:
    """A checkpoint that is being made: for each shard, a file to link or the tensors to write."""

    def __init__(self, asked):
        self.asked, self.output, self.args = asked, asked["output"], asked["args"]
        self.inputs = {word: Checkpoint(path) for word, path in sorted(asked["inputs"].items())}
        self.linked, self.written, self.done = {}, {}, 0

    def take(self, source, shard, name=None):
        """Keep a whole shard of an input as it is."""
        self.linked[name or shard] = (os.path.join(source.directory, shard), source.of_shard(shard))

    def write(self, shard, tensors):
        """Make a shard of these tensors by name."""
        self.written[shard] = tensors

    def run(self, base, edit):
        """Make all of it. `edit` changes the config, which is the base's; so is every other file."""
        said = {**self.asked["said"], "inputs": self.digest()}
        held = partial.claim(self.output, f"step {said['made']} {said['inputs']}")
        self.make_room()
        for shard, (path, _) in sorted(self.linked.items()):
            partial.keep(os.path.realpath(path), os.path.join(self.output, shard))
        for shard, tensors in sorted(self.written.items()):
            self.make_shard(shard, tensors)
        self.describe(base, edit)
        checkpoint.write_marker(self.output, said)
        os.close(held)
        say(f"{len(self.linked)} shards are kept, {len(self.written)} written")

    def digest(self):
        """One sha256 over what the inputs are: names, sizes and times of all files, and the text of the small ones."""
        made = hashlib.sha256()
        for word, source in sorted(self.inputs.items()):
            for name, told in sorted(checkpoint.files(source.directory).items()):
                made.update(f"{word} {name} {told}\n".encode())
                if name.endswith(".json"):
                    with open(os.path.join(source.directory, name), "rb") as file:
                        made.update(file.read())
        return made.hexdigest()

    def make_room(self):
        """Refuse before the disk is full."""
        self.total = sum(tensor.size for shard in self.written.values() for tensor in shard.values())
        there = sum(os.path.getsize(path) for path in map(self.place, self.written) if os.path.exists(path))
        free = shutil.disk_usage(self.output).free
        if self.total - there > free:
            refuse(f"{self.total - there} bytes are to be written, {free} are free")

    def place(self, shard):
        return os.path.join(self.output, shard)

    def make_shard(self, shard, tensors):
        """Write one shard, unless it is there."""
        size = sum(tensor.size for tensor in tensors.values())
        if not os.path.exists(self.place(shard)):
            unfinished = os.path.join(self.output, f".sparkops-{shard}")
            with open(unfinished, "wb") as file:
                self.fill(file, tensors)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, self.place(shard))
            say(f"{shard} is written")
        else:
            self.done += size
        tell(bytes=self.done, total=self.total)

    def fill(self, file, tensors):
        """Header and bytes. Large elements come first, so that every tensor is aligned to its own."""
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
        told_at, left = time.monotonic(), tensor.size
        with open(tensor.path, "rb") as source:
            source.seek(tensor.begin)
            while left:
                piece = source.read(min(CHUNK, left))
                if not piece:
                    refuse(f"{tensor.path} became shorter while it was read")
                file.write(piece)
                left -= len(piece)
                self.done += len(piece)
                if time.monotonic() - told_at > TELL_EVERY_S:
                    told_at = time.monotonic()
                    tell(bytes=self.done, total=self.total)

    def describe(self, base, edit):
        """The files beside the shards. They are copied, not linked: a person may edit them."""
        for name in checkpoint.files(base.directory):
            skipped = name.endswith((checkpoint.SHARD, checkpoint.INDEX)) or name in ("config.json", checkpoint.MARKER)
            if not skipped:
                os.makedirs(os.path.dirname(self.place(name)), exist_ok=True)
                shutil.copyfile(os.path.join(base.directory, name), self.place(name))
        with open(os.path.join(base.directory, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        edit(config)
        dump(self.place("config.json"), merged(config, self.args.get("config", {})))
        dump(self.place(base.index or INDEX), self.index())

    def index(self):
        """Which shard holds which tensor, read from the shards that were made."""
        weight_map, size = {}, 0
        for shard, names in [(s, n) for s, (_, n) in self.linked.items()] + list(self.written.items()):
            found, _ = checkpoint.header(self.place(shard))
            for name in names:
                first, last = found[name]["data_offsets"]
                weight_map[name], size = shard, size + last - first
        return {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}


def merged(value, patch):
    """A JSON value with a patch in it: mappings are merged, null takes a key away, all else is replaced (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    made = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), change)
    return made


def dump(path, value):
    checkpoint.write(path, (json.dumps(value, indent=2) + "\n").encode())


def named(names):
    """The first few names, and how many more there are."""
    first = sorted(names)
    more = f" and {len(first) - NAMED} more" if len(first) > NAMED else ""
    return ", ".join(first[:NAMED]) + more


def tell(**said):
    print(json.dumps(said), flush=True)


def say(text):
    tell(say=text)


def refuse(why):
    """End the step."""
    print(why, file=sys.stderr, flush=True)
    os._exit(1)


def stop(*_):
    """At once. What is whole stays, and the next run goes on with it."""
    os._exit(INTERRUPTED)


def watch_stdin():
    """Whoever started us holds our stdin open. When that ends, nobody waits for the step any more."""
    while os.read(0, 4096):
        pass
    stop()


def begin(*arguments):
    """What is asked for, on the second line of stdin. Arguments that the script does not have are refused."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    asked = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=watch_stdin, daemon=True).start()
    unknown = sorted(set(asked["args"]) - {*arguments, "config"})
    if unknown:
        refuse(f"unknown arguments: {', '.join(unknown)}; there are: {', '.join([*arguments, 'config'])}")
    if sorted(asked["inputs"]) != ["base", "donor"]:
        refuse(f"expected the inputs base and donor, got: {', '.join(sorted(asked['inputs']))}")
    return attempt(lambda: Making(asked))


def attempt(work):
    """Do it, or end the step with the error in words."""
    try:
        return work()
    except OSError as error:
        return refuse(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    except ValueError as error:
        return refuse(str(error))


def finish(make):
    """Do the work of a step, and end well."""
    attempt(make)
    sys.stdout.flush()
    os._exit(0)


def finder(expression):
    """Whether a name has something in it that the regular expression finds."""
    try:
        return re.compile(expression).search
    except re.error as error:
        return refuse(f"{expression} is no regular expression: {error}")
