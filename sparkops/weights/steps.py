"""The steps that make a recipe's model out of other checkpoints: what each makes, and which are due. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkops.config.model import Model, Step
from sparkops.config.recipe import Recipe
from sparkops.weights.checkpoint import GB, ModelDirectory
from sparkops.weights.plan import PARTIAL, WantedModel, enough_room, fetched, in_words, refused


def engine_reads(recipe: Recipe) -> WantedModel:
    """What the recipe's engine loads: what the last step makes, otherwise what comes from the hub."""
    model = recipe.model
    return made(model, model.steps[-1]) if model.steps else fetched(model)


def made(model: Model, step: Step) -> WantedModel:
    """What a step makes."""
    return WantedModel(step.output, model.id, made=digests(model)[step.output])


def digests(model: Model) -> dict[str, str]:
    """What each step's output is, by its path: one sha256 over the script, its arguments and all that it reads.

    Sources count by name and revision, so the answer is the same on every machine and needs none of their bytes.
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
    """Every directory that the steps read or make, and those that may be begun."""
    outputs = [step.output for step in model.steps]
    return [*(source.path for source in model.sources), *outputs, *(path + PARTIAL for path in outputs)]


def outstanding(model: Model, directory: ModelDirectory) -> list[Step]:
    """The steps that are due, in order. What only made something that is needed no more is not taken again."""
    needed, due = {model.path}, []
    for step in reversed(model.steps):
        if step.output in needed and any(refused(made(model, step), directory.checkpoints.get(step.output))):
            needed |= set(step.inputs.values())
            due.append(step)
    return due[::-1]


@dataclass(frozen=True)
class StepLack:
    """What stands against the steps, and what to do about it."""

    problem: str
    next_step: str


def lacking(recipe: Recipe, node: str, steps: Sequence[Step], directory: ModelDirectory) -> StepLack | None:
    """What the steps read and nothing on the way makes, and room on the disk. None where nothing is lacking."""
    model, outputs = recipe.model, {step.output for step in steps}
    reads = {path for step in steps for path in step.inputs.values()}
    for source in model.sources:
        reasons = in_words(refused(fetched(source), directory.checkpoints.get(source.path)))
        if source.path in reads - outputs and reasons:
            step = f"sparkops models pull {recipe.name} --node {node}"
            return StepLack(f"{source.path} cannot be read: {reasons}", step)
    needed = sum(_missing(step, directory) for step in steps)
    if short := enough_room(directory.free, needed):
        return StepLack(short, "Free space under the model directory: sparkops models list shows what takes it.")
    return None


def _missing(step: Step, directory: ModelDirectory) -> float:
    """Bytes that a step will take, less what it has written. The step itself counts exactly, when it has looked."""
    begun = directory.checkpoints.get(step.output + PARTIAL)
    return max(step.disk_gb * GB - (begun.size if begun else 0), 0)


def marker(model: Model, step: Step) -> Mapping[str, str]:
    """What a step's output says about itself."""
    return {"model": model.id, "made": digests(model)[step.output]}


def remedy(recipe: Recipe, node: str) -> str:
    """The command that brings the recipe's weights to a node."""
    if recipe.model.steps:
        return f"sparkops models prepare {recipe.name} --node {node}"
    pull, copy = f"sparkops models pull {recipe.name} --node {node}", f"sparkops models copy {recipe.name} --to {node}"
    return f"{pull}   (or: {copy} --from NODE)"
