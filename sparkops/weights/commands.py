"""The commands about model directories: look, compare, give a name, fetch, take a step. Nothing here runs anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkops.command import Command
from sparkops.config.model import Step, Weights
from sparkops.nodes.program import python
from sparkops.release import LABEL

LOOK_S = 60.0
DAY_S = 24 * 3600.0  # 67 GB take two hours at 10 MB/s; what hangs is ended by Ctrl-C
INSIDE = "/models"
"""Where our containers see the model directory."""
Modules = Mapping[str, str]


def look(store: Modules, model_dir: str, paths: Sequence[str] | None = None) -> Command:
    """What a node holds under these paths of its model directory; everything for None."""
    return python(store, {"verb": "look", "root": model_dir, "paths": paths}, timeout_s=LOOK_S)


def describe(modules: Modules, directory: str) -> Command:
    """Describe the checkpoint in a directory by its config.json and headers, for the memory planner."""
    return python(modules, {"directory": directory}, timeout_s=LOOK_S)


def hash_files(store: Modules, model_dir: str, path: str, names: Sequence[str]) -> Command:
    """The sha256 of some files of one directory."""
    return python(store, {"verb": "hash", "root": model_dir, "path": path, "names": names}, timeout_s=DAY_S)


def publish(store: Modules, model_dir: str, path: str) -> Command:
    """Give PATH.partial, which is whole, its name. What had the name is removed."""
    request = {"verb": "publish", "root": model_dir, "path": path}
    return python(store, request, timeout_s=600.0, changes=True)


def container(model_dir: str, image: str, user: tuple[int, int], *, network: str, task: str) -> tuple[str, ...]:
    """A Python in a container that sees the model directory, as the user whom its files belong to.

    A bind mount, not --volume: Docker would make a directory that is not there, and give it to root.
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


def pull(modules: Modules, interpreter: Sequence[str], weights: Weights, token: str, endpoint: str) -> Command:
    """Fetch from the hub, in a container. The token is in stdin, so no list of processes shows it."""
    request = {
        "id": weights.id,
        "revision": weights.revision,
        "exclude": weights.exclude,
        "directory": f"{INSIDE}/{weights.path}",
        "token": token,
        "endpoint": endpoint,
    }
    return python(modules, request, interpreter=interpreter, timeout_s=DAY_S, changes=True)


def take_step(modules: Modules, interpreter: Sequence[str], step: Step, marker: Mapping[str, Any]) -> Command:
    """Run the script of a step, in a container without a network. `marker`: content of its marker."""
    request = {
        "inputs": {word: f"{INSIDE}/{path}" for word, path in step.inputs.items()},
        "output": f"{INSIDE}/{step.output}.partial",
        "args": step.args,
        "said": marker,
    }
    return python(modules, request, interpreter=interpreter, timeout_s=DAY_S, changes=True)
