"""Resolve the inputs of a recipe's build on one node, and read the contents of the built image."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sparkops.config.assets import BuildInputs
from sparkops.config.lock import Contents, Described, Finished, Lock, Parent, fingerprint
from sparkops.config.recipe import Recipe
from sparkops.engines import ENGINES, image_facts
from sparkops.errors import CommandFailed, NodeError
from sparkops.node import host
from sparkops.node.docker import commands
from sparkops.node.docker_api import Facts
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.operator.build.images.build import BuildOrder, Gate, build_noted, other_architecture, pull, run_build
from sparkops.operator.build.lock import finished, resolving
from sparkops.operator.build.render import context
from sparkops.operator.build.weights import models
from sparkops.operator.build.weights.description import to_lock
from sparkops.operator.build.weights.models import describe
from sparkops.operator.fleet.connected import Connected

DISK_GIB = 4.0
PULLED = re.compile(r"^Digest: (sha256:[0-9a-f]{64})$", re.MULTILINE)
"""Line of `docker pull`. The image may also have digests of other registries, and of earlier pulls."""
TAG = re.compile(r":[^/:]+$")
OTHER_PLATFORM = "no matching manifest for"
"""Message of `docker pull` for an image of other architectures."""


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
    member: Member,
    recipe: Recipe,
    files: BuildFiles,
    parent: Parent,
    before: Lock | None,
    requested: str,
    report: OnEvent,
) -> Lock:
    """Return the lock of a recipe and its parent for a node. Keeps versions of `before` that still fit.

    Raises NodeError.
    """
    facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
    lock = Lock(
        made_for=fingerprint(recipe.image),
        machine=facts.arch,
        parent=parent,
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


def built_contents(
    connected: Connected, member: Member, recipe: Recipe, order: BuildOrder, gate: bytes, report: OnEvent
) -> Contents | None:
    """Build the image on one node and return its contents; None of an engine without Python.

    Raises what `build_noted` raises.
    """
    build_noted(connected, member, order, report, 0.0)
    if not ENGINES[recipe.engine].pins:
        return None
    facts = image_facts.parse(member.node.run(commands.check_image(order.tag, gate)).stdout)
    return Contents(torch=facts.torch.version, cuda=facts.cuda, archs=list(facts.archs))


def resolve_parent(
    member: Member, recipe: Recipe, before: Parent | None, report: OnEvent, *, update: bool = False
) -> Parent:
    """Return the digest of the recipe's base or finished image in its registry, or its layers if only this node has it.

    Keeps the digest of `before` if it is of the same name; without `before`, or to `update` it, takes the newest one.
    Raises NodeError, also for an update without an answer of the registry: what the node has need not be the newest.
    """
    name = recipe.image.parent
    known = before.digest if before and before.name == name and "@" not in name else None
    kept = None if update else known
    wanted = f"{name}@{kept}" if kept else name
    report(Event(member.name, f"resolving {wanted}"))
    digest, why = kept, ""
    try:
        pulled = pull(member, wanted, report)
        digest = kept or next(iter(PULLED.findall(pulled)), None)
    except CommandFailed as failed:  # without a registry the node may have the image
        if OTHER_PLATFORM in failed.completed.stderr:
            raise other_architecture(member, wanted) from failed
        why = failed.completed.last_lines or "no output"
        if update and known:
            problem = f"the newest digest of {name} is unknown: {why.splitlines()[-1]}"
            step = "Give the node access to the registry, then retry. Without --update the lock keeps its digest."
            raise NodeError(member.name, problem, next_step=step) from failed
    facts = member.engine.image(wanted)
    if facts is None:
        raise _not_pulled(member, wanted, why, kept=kept is not None)
    if why:
        report(Event(member.name, f"not pulled, so the image on the node is taken: {why.splitlines()[-1]}"))
    if digest is None:
        digest = _digest(facts, name)
    contents = describe_finished(member, facts, report) if recipe.image.use else None
    layers = facts["RootFS"].get("Layers") or []
    return Parent(name=name, digest=None if "@" in name else digest, layers=layers, finished=contents)


def _digest(inspect: Facts, name: str) -> str | None:
    """Return what the registry of `name` calls an image, else what another one does; None if it is from none."""
    digests = [item.partition("@") for item in inspect.get("RepoDigests") or ()]
    repository = TAG.sub("", name)
    digests.sort(key=lambda item: item[0] != repository)
    return digests[0][2] if digests else None


def _not_pulled(member: Member, name: str, why: str, *, kept: bool) -> NodeError:
    said = f": {why.splitlines()[-1]}" if why else ""
    problem = f"image not found in a registry or on the node: {name}{said}"
    step = "Give the node access to the registry, or load the image: docker save | docker load"
    newer = "If the registry no longer has this digest, take the newest: sparkops recipe lock RECIPE --update"
    return NodeError(member.name, problem, next_step=newer if kept else step)


def describe_finished(member: Member, inspect: Facts, report: OnEvent) -> Finished:
    """Return the contents of a finished image on the node. Versions that its Python does not print stay unknown."""
    report(Event(member.name, "reading versions in the image"))
    printed = ""
    try:
        printed = member.node.run(finished.read_versions(inspect["Id"])).stdout
    except CommandFailed as failed:
        report(Event(member.name, f"versions in the image are unknown: {failed.completed.last_lines}"))
    return finished.parse(inspect, printed)


def known_parent(member: Member, parent: Parent, report: OnEvent) -> Parent:
    """Return a locked image with its contents, read on the node if neither the lock has them nor a pull is needed."""
    if parent.finished or not parent.digest:
        return parent
    facts = member.engine.image(f"{parent.name}@{parent.digest}")
    return parent.model_copy(update={"finished": describe_finished(member, facts, report)}) if facts else parent


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
    source = recipe.image.requirement.lower() if recipe.image.source and recipe.image.requirement else ""
    return {name: hashes for name, hashes in pinned.items() if name != source}
