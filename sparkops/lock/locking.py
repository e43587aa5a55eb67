"""Learn on one node what a build of a recipe takes, and what the image that comes of it is."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from sparkops.config.assets import BuildInputs
from sparkops.config.engine import ENGINES
from sparkops.config.lock import Contents, Described, Lock, Parent, fingerprint
from sparkops.config.recipe import Recipe
from sparkops.deploy.fitting import describe
from sparkops.docker import commands
from sparkops.errors import CommandFailed, NodeError
from sparkops.images import gate
from sparkops.images.build import BuildOrder, Gate, run_build
from sparkops.lock import resolved, resolving
from sparkops.memory.description import keep
from sparkops.nodes import host
from sparkops.nodes.connected import Member
from sparkops.nodes.progress import Event, Tell
from sparkops.render import context
from sparkops.weights import models

PULL_TIMEOUT_S = 3600.0
"""A base with the whole CUDA toolkit is several GB."""
DISK_GIB = 4.0


@dataclass(frozen=True)
class Shelf:
    """What builds are made from, read at the door."""

    templates: Mapping[str, str]
    mods: Mapping[str, bytes]
    inputs: BuildInputs
    gate: bytes


def fits(lock: Lock, recipe: Recipe, shelf: Shelf) -> bool:
    """Whether a lock is of what the recipe says now."""
    mods = context.hashes(context.wanted_mods(recipe, shelf.mods))
    return lock.made_for == fingerprint(recipe.image) and lock.mods == mods


def lock_on(member: Member, recipe: Recipe, shelf: Shelf, before: Lock | None, requested: str, tell: Tell) -> Lock:
    """What a build of `recipe` takes on that node. Versions of `before` stay where they still fit. Raises NodeError."""
    facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
    locked = Lock(
        made_for=fingerprint(recipe.image),
        machine=facts.arch,
        parent=_parent(member, recipe.image.base, tell),
        commit=recipe.image.source.commit if recipe.image.source else None,
        whole=resolving.whole(recipe, shelf.templates),
        mods=context.hashes(context.wanted_mods(recipe, shelf.mods)),
        models=_models(member, recipe),
        checkpoint=_checkpoint(member, recipe, tell),
    )
    if not resolving.wanted(recipe, shelf.templates):
        return locked
    held = recipe.model_copy(update={"image": locked.based(recipe.image)})
    return locked.model_copy(update={"packages": _packages(member, held, shelf, before, requested, tell)})


def contents(member: Member, recipe: Recipe, order: BuildOrder, shelf: Shelf) -> Contents | None:
    """What the built image says of itself; None where it has no torch. Raises NodeError."""
    if recipe.image.torch is None:
        return None
    facts = gate.parse(member.node.run(commands.ask_image(order.tag, shelf.gate)).stdout)
    return Contents(torch=facts.torch.version, cuda=facts.cuda, archs=list(facts.archs))


def _parent(member: Member, name: str, tell: Tell) -> Parent:
    """A registry says which image a name means now; an image that only this node has is known by its layers."""
    tell(Event(member.name, f"asking which image {name} is"))
    with suppress(CommandFailed):  # no registry has it, or none can be reached: then the node must
        member.node.run(commands.docker("pull", "--quiet", name, timeout_s=PULL_TIMEOUT_S))
    facts = member.engine.image(name)
    if facts is None:
        step = "Let the node reach the registry, or give it the image: docker save | docker load"
        raise NodeError(member.name, f"no registry gave {name}, and the node has none of that name", next_step=step)
    digests = [digest.partition("@")[2] for digest in facts.get("RepoDigests") or ()]
    layers = facts["RootFS"].get("Layers") or []
    return Parent(name=name, digest=digests[0] if digests and "@" not in name else None, layers=layers)


def _models(member: Member, recipe: Recipe) -> dict[str, str]:
    """The commit of each model that the recipe fetches: as it says, or as it lies on the node."""
    checkpoints = models.look(member, [weights.path for weights in recipe.model.fetched]).checkpoints
    commits = {}
    for weights in recipe.model.fetched:
        checkpoint = checkpoints.get(weights.path)
        commit = weights.revision or (checkpoint.commit if checkpoint else None)
        if commit:
            commits[weights.id] = commit
    return commits


def _checkpoint(member: Member, recipe: Recipe, tell: Tell) -> Described | None:
    """Return what the memory planner needs of the model; None, with a report, where the node does not have it whole."""
    path = recipe.model.path
    if not ENGINES[recipe.engine].weights:
        return None
    try:
        described = describe(member, path)
    except NodeError as error:
        tell(Event(member.name, f"checkpoint not described: {error.problem}"))
        return None
    if described is None:
        return None
    checkpoint = models.look(member, [path]).checkpoints.get(path)
    return keep(described, recipe.model.id, checkpoint.commit if checkpoint else None)


def _packages(
    member: Member, recipe: Recipe, shelf: Shelf, before: Lock | None, requested: str, tell: Tell
) -> dict[str, list[str]]:
    context = resolving.resolving(recipe, shelf.templates, shelf.inputs, before, requested)
    order = BuildOrder(
        f"{recipe.name}-lock", context, DISK_GIB, Gate(lambda image: commands.read_file(image, resolving.ANSWER))
    )
    run_build(member, order, tell)
    try:
        answer = member.node.run(order.gate.ask(order.candidate)).stdout
    finally:
        member.node.run(commands.remove_image(order.candidate))
    try:
        pinned = resolved.parse(answer)
    except ValueError as error:
        raise NodeError(member.name, f"uv did not say what the build takes: {error}") from error
    source = recipe.image.vllm.lower() if recipe.image.source and recipe.image.vllm else ""
    return {name: hashes for name, hashes in pinned.items() if name != source}
