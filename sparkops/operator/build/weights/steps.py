"""Compute outputs, digests and due steps of a recipe that makes its model from other checkpoints. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparkops.config.model import Model, Step
from sparkops.config.recipe import Recipe
from sparkops.errors import NotReady
from sparkops.operator.build.weights.checkpoint import ModelDirectory
from sparkops.operator.build.weights.plan import PARTIAL, RequiredModel, enough_room, fetched, in_words, refused
from sparkops.units import BYTES


def engine_reads(recipe: Recipe) -> RequiredModel:
    """Return the model that the engine loads: the output of the last step, or the download."""
    model = recipe.model
    if not model.steps:
        return fetched(model)
    return replace(output_of(model, model.steps[-1]), files=tuple(model.files))


def read_by_engine(recipe: Recipe) -> list[RequiredModel]:
    """Return every checkpoint that the engine loads: the model, and its draft."""
    return [engine_reads(recipe), *([fetched(recipe.model.draft)] if recipe.model.draft else [])]


def output_of(model: Model, step: Step) -> RequiredModel:
    return RequiredModel(step.output, model.id, steps=digests(model)[step.output])


def digests(model: Model) -> dict[str, str]:
    """Return the sha256 over script, arguments and inputs of each step, by the path of its output.

    Sources count by name and revision, so the digest is the same on every machine and needs no file.
    """
    known = {source.path: f"{source.id}@{source.revision or ''}" for source in model.sources}
    by_path = {}
    for step in model.steps:
        inputs = [step.script, step.args, {word: known[path] for word, path in step.inputs.items()}]
        known[step.output] = by_path[step.output] = hashlib.sha256(
            json.dumps(inputs, sort_keys=True).encode()
        ).hexdigest()
    return by_path


def paths(model: Model) -> list[str]:
    """Return every directory that the steps read or write, including partial ones."""
    outputs = [step.output for step in model.steps]
    return [*(source.path for source in model.sources), *outputs, *(path + PARTIAL for path in outputs)]


def outstanding(model: Model, directory: ModelDirectory) -> list[Step]:
    """Return the steps that are due, in order. Steps whose output is not needed are skipped."""
    needed, due = {model.path}, []
    for step in reversed(model.steps):
        if step.output in needed and any(refused(output_of(model, step), directory.checkpoints.get(step.output))):
            needed |= set(step.inputs.values())
            due.append(step)
    return due[::-1]


def lacking(recipe: Recipe, node: str, steps: Sequence[Step], directory: ModelDirectory) -> NotReady | None:
    """Return the refusal for an unusable source of the steps, or for too little disk space."""
    model, outputs = recipe.model, {step.output for step in steps}
    reads = {path for step in steps for path in step.inputs.values()}
    for source in model.sources:
        reasons = in_words(refused(fetched(source), directory.checkpoints.get(source.path)))
        if source.path in reads - outputs and reasons:
            step = f"sparkops models pull {recipe.word} --node {node}"
            return NotReady(node, f"{source.path} is unusable: {reasons}", next_step=step)
    written = {path: checkpoint.size for path, checkpoint in directory.checkpoints.items()}
    needed = sum(max(step.disk_gb * BYTES["gb"] - written.get(step.output + PARTIAL, 0), 0) for step in steps)
    if short := enough_room(directory.free, needed):
        step = "Free space under the model directory: sparkops models list"
        return NotReady(node, short, next_step=step)
    return None


def marker(model: Model, step: Step) -> Mapping[str, str]:
    return {"model": model.id, "made": digests(model)[step.output]}


def remedy(recipe: Recipe, node: str) -> str:
    """Return the command that puts the recipe's weights on a node."""
    if recipe.model.steps:
        return f"sparkops models prepare {recipe.word} --node {node}"
    pull, copy = f"sparkops models pull {recipe.word} --node {node}", f"sparkops models copy {recipe.word} --to {node}"
    return f"{pull}   (or: {copy} --from NODE)"
