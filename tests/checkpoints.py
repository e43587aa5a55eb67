"""Tiny checkpoints for real engines: trained in the recipe's own image, copied to nodes like a user's model."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import subprocess
import tarfile
from itertools import cycle
from operator import add
from pathlib import Path

from sparkops.command import Command, quote
from sparkops.config import shipped
from sparkops.config.inventory import Fleet
from sparkops.operator.fleet.connect import Connector

TRAINER = shipped.PACKAGE.parent / "templates/demo/tiny_model.py"
INSIDE = 'cat > /tmp/train.py && python /tmp/train.py "$@" /tmp/model >&2 && tar -C /tmp/model -cf - .'
NOISE = 2.0
"""Of the noise in one layer, as a share of the deviation of its weights.

The three answers of the tiny model stay right. With 0.5 in its other layer, its log-probabilities move by 0.06 nats.
"""
NOISY_LAYER = "model.layers.0.mlp.down_proj.weight"
NOISE_PERIOD = 2**16 + 1
"""Weights after which it repeats: a layer of a larger model has millions."""


def make(fleet: Fleet, node: str, image: str, cache: Path, *options: str) -> Path:
    """Train a checkpoint inside `image` on `node` and bring it here. Done once for each trainer and options."""
    script = TRAINER.read_bytes()
    key = hashlib.sha256(script + "\0".join(options).encode()).hexdigest()[:12]
    checkpoint = cache / key
    if not checkpoint.is_dir():
        run = ("docker", "run", "--rm", "--interactive", "--network=none", "--entrypoint=sh", image, "-c", INSIDE, "sh")
        packed = _binary(fleet, node, Command((*run, *options), stdin=script))
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(checkpoint, filter="data")
    for file in checkpoint.iterdir():
        file.chmod(0o644)  # safetensors writes 0600
    return checkpoint


def provide(fleet: Fleet, image: str, cache: Path, name: str, *options: str) -> None:
    """Train a checkpoint on the first node, and copy it to the model directory of every node under `name`."""
    checkpoint = make(fleet, next(iter(fleet.nodes)), image, cache, *options)
    for node in fleet.nodes:
        copy(fleet, node, checkpoint, name)


def _binary(fleet: Fleet, node: str, command: Command) -> bytes:
    return subprocess.run(
        [*ssh_argv(fleet, node, "ssh"), quote(*command.argv)],
        input=command.stdin,
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    ).stdout


def copy(fleet: Fleet, node: str, checkpoint: Path, name: str) -> None:
    """Copy a checkpoint to the node's model directory under `name`, as a user would: with scp."""
    directory = fleet.node(node).model_dir
    config = fleet.node(node)
    target = f"{config.user}@{config.address}:{directory}/{name}"
    connected = Connector(fleet).node(node)
    try:
        connected.run(Command(("rm", "-rf", f"{directory}/{name}")))
    finally:
        connected.close()
    subprocess.run([*ssh_argv(fleet, node, "scp"), "-q", "-r", str(checkpoint), target], check=True, timeout=120)


def ssh_argv(fleet: Fleet, node: str, program: str) -> list[str]:
    """OpenSSH's `program` (ssh or scp) up to and with the target; the same key and pinned host key as sparkops."""
    config = fleet.node(node)
    options = {
        "HostKeyAlias": node,
        "UserKnownHostsFile": str(fleet.known_hosts),
        "IdentitiesOnly": "yes",
        "IdentityFile": str(fleet.resolve(config.ssh_key or "")),
    }
    target = f"{config.user}@{config.address}"
    return [program, *(f"-o{key}={value}" for key, value in options.items()), *([target] if program == "ssh" else [])]


def add_noise(file: Path, name: str) -> None:
    """Add normal noise to one tensor of float32 or bfloat16, in place."""
    with file.open("r+b") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        entry = json.loads(opened.read(length))[name]
        wide = entry["dtype"] == "F32"
        assert wide or entry["dtype"] == "BF16", entry
        begin, end = (8 + length + at for at in entry["data_offsets"])
        opened.seek(begin)
        raw = opened.read(end - begin)
        values = struct.unpack(f"<{(end - begin) // (4 if wide else 2)}f", raw if wide else _widened(raw))
        deviation = (sum(value * value for value in values) / len(values)) ** 0.5
        chance = random.Random(1)
        noise = [chance.gauss(0, NOISE * deviation) for _ in range(min(len(values), NOISE_PERIOD))]
        noisy = struct.pack(f"<{len(values)}f", *map(add, values, cycle(noise)))
        opened.seek(begin)
        opened.write(noisy if wide else _narrowed(noisy))


def _widened(raw: bytes) -> bytes:
    """Return bfloat16 as float32, whose upper half it is."""
    whole = bytearray(2 * len(raw))
    whole[2::4], whole[3::4] = raw[::2], raw[1::2]
    return bytes(whole)


def _narrowed(raw: bytes) -> bytes:
    half = bytearray(len(raw) // 2)
    half[::2], half[1::2] = raw[2::4], raw[3::4]
    return bytes(half)
