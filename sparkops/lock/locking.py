"""Resolve the inputs of a recipe's build on one node, and read the contents of the built image."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from sparkops.config.assets import BuildInputs
from sparkops.config.lock import Contents, Described, Lock, Parent, fingerprint
from sparkops.config.recipe import Recipe
from sparkops.deploy.fitting import describe
from sparkops.docker import commands
from sparkops.engines import ENGINES
from sparkops.errors import CommandFailed, NodeError
from sparkops.images import gate
from sparkops.images.build import BuildOrder, Gate, run_build
from sparkops.lock import resolving
from sparkops.memory.description import to_lock
from sparkops.nodes import host
from sparkops.nodes.connected import Member
from sparkops.nodes.progress import Event, OnEvent
from sparkops.render import context
from sparkops.weights import models

PULL_TIMEOUT_S = 3600.0
"""A base with the CUDA toolkit has several GB."""
DISK_GIB = 4.0


@dataclass(frozen=True)
class BuildFiles:
    """The local files that go into builds."""

    templates: Mapping[str, str]
    mods: Mapping[str, bytes]
    inputs: BuildInputs
    gate: bytes


def fits(lock: Lock, recipe: Recipe, files: BuildFiles) -> bool:
    """Return whether a lock matches the recipe."""
    mods = context.hashes(context.recipe_mods(recipe, files.mods))
    return lock.made_for == fingerprint(recipe.image) and lock.mods == mods


def lock_on(
    member: Member, recipe: Recipe, files: BuildFiles, before: Lock | None, requested: str, report: OnEvent
) -> Lock:
    """Return the lock of a recipe for a node. Keeps versions of `before` that still fit. Raises NodeError."""
    facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
    lock = Lock(
        made_for=fingerprint(recipe.image),
        machine=facts.arch,
        parent=_parent(member, recipe.image.parent, report),
        commit=recipe.image.source.commit if recipe.image.source else None,
        whole=resolving.hashes_all(recipe),
        mods=context.hashes(context.recipe_mods(recipe, files.mods)),
        models=_models(member, recipe),
        checkpoint=_checkpoint(member, recipe, report),
    )
    if not resolving.requirements(recipe):
        return lock
    pinned = recipe.model_copy(update={"image": lock.pinned_image(recipe.image)})
    return lock.model_copy(update={"packages": _packages(member, pinned, files, before, requested, report)})


def contents(member: Member, recipe: Recipe, order: BuildOrder, files: BuildFiles) -> Contents | None:
    """Return the contents of the built image; None of an engine without Python. Raises NodeError."""
    if not ENGINES[recipe.engine].python:
        return None
    facts = gate.parse(member.node.run(commands.check_image(order.tag, files.gate)).stdout)
    return Contents(torch=facts.torch.version, cuda=facts.cuda, archs=list(facts.archs))


def _parent(member: Member, name: str, report: OnEvent) -> Parent:
    """Return the digest of an image in its registry, or its layers if only this node has it."""
    report(Event(member.name, f"resolving {name}"))
    with suppress(CommandFailed):  # without a registry the node may have the image
        member.node.run(commands.docker("pull", "--quiet", name, timeout_s=PULL_TIMEOUT_S))
    facts = member.engine.image(name)
    if facts is None:
        step = "Give the node access to the registry, or load the image: docker save | docker load"
        raise NodeError(member.name, f"image not found in a registry or on the node: {name}", next_step=step)
    digests = [digest.partition("@")[2] for digest in facts.get("RepoDigests") or ()]
    layers = facts["RootFS"].get("Layers") or []
    return Parent(name=name, digest=digests[0] if digests and "@" not in name else None, layers=layers)


def _models(member: Member, recipe: Recipe) -> dict[str, str]:
    """Return the commit of each download: from the recipe, or else from the node."""
    checkpoints = models.look(member, [weights.path for weights in recipe.model.fetched]).checkpoints
    commits = {}
    for weights in recipe.model.fetched:
        checkpoint = checkpoints.get(weights.path)
        commit = weights.revision or (checkpoint.commit if checkpoint else None)
        if commit:
            commits[weights.id] = commit
    return commits


def _checkpoint(member: Member, recipe: Recipe, report: OnEvent) -> Described | None:
    """Return the description of the model for the prediction of memory; None, with a report, if the node lacks it."""
    path = recipe.model.path
    if not ENGINES[recipe.engine].weights:
        return None
    try:
        described = describe(member, path)
    except NodeError as error:
        report(Event(member.name, f"the lock gets no checkpoint: {error.problem}"))
        return None
    if described is None:
        return None
    checkpoint = models.look(member, [path]).checkpoints.get(path)
    return to_lock(described, recipe.model.id, checkpoint.commit if checkpoint else None)


def _packages(
    member: Member, recipe: Recipe, files: BuildFiles, before: Lock | None, requested: str, report: OnEvent
) -> dict[str, list[str]]:
    context = resolving.resolving_context(recipe, files.templates, files.inputs, before, requested)
    order = BuildOrder(
        f"{recipe.name}-lock", context, DISK_GIB, Gate(lambda image: commands.read_file(image, resolving.ANSWER))
    )
    run_build(member, order, report)
    try:
        answer = member.node.run(order.gate.command(order.candidate)).stdout
    finally:
        member.node.run(commands.remove_image(order.candidate))
    try:
        pinned = resolving.parse(answer)
    except ValueError as error:
        raise NodeError(member.name, f"uv could not resolve the packages: {error}") from error
    source = recipe.image.vllm.lower() if recipe.image.source and recipe.image.vllm else ""
    return {name: hashes for name, hashes in pinned.items() if name != source}
