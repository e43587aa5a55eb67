"""Tiny checkpoints for real engines: trained in the recipe's own image, copied to nodes like a user's model."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from pathlib import Path

from sparkops.command import Command, quote
from sparkops.config import shipped
from sparkops.config.inventory import Fleet
from sparkops.operator.fleet.connect import Connector

TRAINER = shipped.PACKAGE.parent / "templates/demo/tiny_model.py"
INSIDE = 'cat > /tmp/train.py && python /tmp/train.py "$@" /tmp/model >&2 && tar -C /tmp/model -cf - .'


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
