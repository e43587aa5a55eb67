"""Weights that a node has more than once. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath

from sparkops.command import quote
from sparkops.docker.commands import model_dir
from sparkops.doctor.node_facts import NodeFacts, warning
from sparkops.errors import NodeError
from sparkops.network.finding import Finding
from sparkops.nodes.host import GIB
from sparkops.weights.checkpoint import ModelDirectory

CACHED = "models--"


def findings(node: NodeFacts) -> Iterator[Finding]:
    """Yield each further copy of a model: in the model directory, and in the hub's own cache of the SSH user.

    Copies are recognized by the recorded model and commit, in the cache by the model alone.
    """
    if isinstance(node.weights, NodeError):
        step = node.weights.next_step or f"sparkops models list --node {node.name}"
        yield warning("WEIGHTS_UNREAD", node.name, node.weights.problem, step)
    checkpoints = node.weights.checkpoints.values() if isinstance(node.weights, ModelDirectory) else ()
    where, copies = model_dir(node.config), defaultdict[tuple[str, str], list[str]](list)
    sizes = {f"{where}/{checkpoint.path}": checkpoint.size / GIB for checkpoint in checkpoints}
    for checkpoint in checkpoints:
        if checkpoint.complete and checkpoint.origin and not checkpoint.origin.steps and checkpoint.commit:
            copies[checkpoint.origin.model, checkpoint.commit].append(f"{where}/{checkpoint.path}")
    for (model, _), (first, *others) in copies.items():
        for copy in others:
            yield _duplicate(node.name, model, first, copy, sizes[copy])
    kept = {model: directories[0] for (model, _), directories in copies.items()}
    for directory, size in node.machine.hub_cache.items():
        model = PurePath(directory).name.removeprefix(CACHED).replace("--", "/")
        if model in kept and not PurePath(directory).is_relative_to(where):
            yield _duplicate(node.name, model, kept[model], directory, size)


def _duplicate(node: str, model: str, first: str, copy: str, size_gib: float) -> Finding:
    problem = f"{model} exists twice: {first} and {copy} ({size_gib:.1f} GiB)"
    step = f"If no recipe's model.path or program names it: rm -r {quote(copy)}"
    return warning("WEIGHTS_TWICE", node, problem, step)
