"""Build commands for model directories: list, hash, publish, download, run a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkops.command import Command
from sparkops.config import programs
from sparkops.config.model import Step, Weights
from sparkops.names import LABEL
from sparkops.node.program import python

LOOK_S = 60.0
HUB_S = 120.0
"""Longer than templates/node/hub.py lets its requests take."""
DAY_S = 24 * 3600.0  # 67 GB take two hours at 10 MB/s; Ctrl-C ends a command that hangs
INSIDE = "/models"
"""The model directory in containers of sparkops."""


def _store(verb: str, model_dir: str, timeout_s: float, *, changes: bool = False, **request: Any) -> Command:
    """Run templates/node/store.py."""
    modules = programs.load(*programs.STORE)
    return python(modules, {"verb": verb, "root": model_dir, **request}, timeout_s=timeout_s, changes=changes)


def look(model_dir: str, paths: Sequence[str] | None = None) -> Command:
    """List checkpoints under these paths of a node's model directory; all for None."""
    return _store("look", model_dir, LOOK_S, paths=paths)


def describe(directory: str) -> Command:
    """Read config.json and headers of the checkpoint in a directory, for the prediction of memory."""
    return python(programs.load(*programs.DESCRIBE), {"directory": directory}, timeout_s=LOOK_S)


def describe_at_hub(weights: Weights, token: str, endpoint: str, certificates: Sequence[bytes]) -> Command:
    """Read the same of a model at its hub, from the node, by range requests. The token is in stdin."""
    request = {
        "id": weights.id,
        "revision": weights.revision,
        "exclude": weights.exclude,
        "token": token,
        "endpoint": endpoint,
        "certificates": [certificate.decode(errors="replace") for certificate in certificates],
    }
    return python(programs.load(*programs.DESCRIBE), request, timeout_s=HUB_S)


def hash_files(model_dir: str, path: str, names: Sequence[str]) -> Command:
    """Compute the sha256 of some files of one directory."""
    return _store("hash", model_dir, DAY_S, path=path, names=names)


def publish(model_dir: str, path: str) -> Command:
    """Rename the complete PATH.partial to PATH, replacing any other directory."""
    return _store("publish", model_dir, 600.0, changes=True, path=path)


def container(model_dir: str, image: str, user: tuple[int, int], *, network: str, task: str) -> tuple[str, ...]:
    """Return the command that runs Python in a container with the model directory, as the owner of its files.

    It uses a bind mount, because --volume would create a missing directory with owner root.
    """
    return (
        "docker",
        "run",
        "--rm",
        "--interactive",
        f"--label={LABEL}task={task}",
        f"--network={network}",
        f"--user={user[0]}:{user[1]}",
        "--env=HOME=/tmp",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        f"--mount=type=bind,source={model_dir},target={INSIDE}",
        "--entrypoint=python",
        image,
    )


def pull(interpreter: Sequence[str], weights: Weights, token: str, endpoint: str) -> Command:
    """Download from the hub, in a container. The token is in stdin, hidden from process lists."""
    request = {
        "id": weights.id,
        "revision": weights.revision,
        "include": weights.files,
        "exclude": weights.exclude,
        "directory": f"{INSIDE}/{weights.path}",
        "token": token,
        "endpoint": endpoint,
    }
    return python(programs.load(*programs.PULL), request, interpreter=interpreter, timeout_s=DAY_S, changes=True)


def take_step(interpreter: Sequence[str], step: Step, marker: Mapping[str, Any]) -> Command:
    """Run the script of a step, in a container without a network. `marker`: content of its marker."""
    request = {
        "inputs": {word: f"{INSIDE}/{path}" for word, path in step.inputs.items()},
        "output": f"{INSIDE}/{step.output}.partial",
        "args": step.args,
        "marker": marker,
    }
    return python(programs.load_step(step.script), request, interpreter=interpreter, timeout_s=DAY_S, changes=True)
