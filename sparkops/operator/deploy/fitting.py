"""Read a model's description from a node, a lock or its hub, and compare a recipe's needs with the memory of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sparkops.config.recipe import Recipe
from sparkops.engines.calculators import CALCULATORS
from sparkops.engines.sizes import WrongValue
from sparkops.errors import NotReady, PlanRefused, SparkopsError, UsageError
from sparkops.node import host
from sparkops.node.docker.commands import model_dir
from sparkops.node.docker.places import CONTAINER
from sparkops.node.member import Member
from sparkops.operator.build.hub.headers import HubHeaders
from sparkops.operator.build.weights import description
from sparkops.operator.build.weights.description import Description
from sparkops.operator.build.weights.models import describe
from sparkops.operator.build.weights.steps import remedy
from sparkops.operator.deploy.memory import fit
from sparkops.operator.deploy.memory.fit import Fit, Measured
from sparkops.operator.deploy.observe import containers
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards.leader import connect_guard
from sparkops.serving.memory.pools import room
from sparkops.serving.startup import estimate
from sparkops.serving.startup.estimate import Started


def fits(connected: Connected, recipe: Recipe, hub: HubHeaders | None = None) -> dict[str, Fit | SparkopsError]:
    """Return what the recipe takes on each connected node, or why that is unknown. Raises PlanRefused.

    `hub` describes a model that neither the node nor the lock does.
    """
    _require_rules(recipe)
    return connected.on_each(lambda member: _fit(member, recipe, hub))


def _require_rules(recipe: Recipe) -> None:
    if recipe.engine not in CALCULATORS:
        computed = " and ".join(CALCULATORS)
        raise PlanRefused(
            f"{recipe.name}: memory unknown: no rules for the engine {recipe.engine}, only for {computed}"
        )


def _fit(member: Member, recipe: Recipe, hub: HubHeaders | None) -> Fit:
    facts, running = host.parse(member.node.run(host.FREE).stdout), containers(member)
    described = _description(member, recipe, hub)
    last, problem = _last_start(member, recipe)
    try:
        computed = fit.fit(recipe, described, room(member.name, recipe, facts, running), last)
    except WrongValue as error:
        step = f"Change it in {recipe.name}, or with --set."
        raise UsageError(f"{recipe.name}: {error}", next_step=step) from error
    except ValueError as error:
        step = f"Change it in {recipe.name}, or measure a start and set memory.claim_gib."
        raise PlanRefused(f"{member.name}: memory unknown: {error}", next_step=step) from error
    return replace(computed, note=problem)


def _last_start(member: Member, recipe: Recipe) -> tuple[Measured | None, str]:
    """Return the memory of the last start on a node, from its guard; or why that cannot be read."""
    if member.engine.container(CONTAINER) is None:
        return None, ""
    try:
        with connect_guard(member) as guard:
            return measured(recipe, estimate.remembered(guard.starts(recipe.service))), ""
    except SparkopsError as error:
        return None, f"past starts not read: {error}"


def measured(recipe: Recipe, past: Iterable[Started]) -> Measured | None:
    """Return the memory of the newest start with the settings of a recipe; None without one whose log had it all.

    `past` begins with the oldest start.
    """
    key, newest = estimate.settings(recipe), None
    for start in past:
        memory, share = start.memory, start.share
        if start.settings == key and share and memory.weights_gib is not None and memory.cache_gib is not None:
            newest = Measured(memory.weights_gib, memory.cache_gib, share, memory.graphs_gib or 0.0)
    return newest


def _description(member: Member, recipe: Recipe, hub: HubHeaders | None) -> Description:
    """Return the description on the node, else in the recipe's lock, else at the hub. Raises NotReady without any."""
    model, at_hub = recipe.model, ""
    described = describe(member, model.path) or _of_lock(recipe)
    step = f"{remedy(recipe, member.name)}\nor, if a node has it: sparkops recipe lock {recipe.word} --node NODE"
    if described is None and hub and not model.steps:  # what steps make, no hub has
        try:
            described = hub.describe(member, model)
        except NotReady as error:
            at_hub, step = f"; {error.problem}", f"{error.next_step}\n{step}"
    if described is None:
        where = f"{model_dir(member.config)}/{model.path}"
        problem = f"memory unknown: no config.json in {where}, no description of {model.id} in a lock{at_hub}"
        raise NotReady(member.name, problem, next_step=step)
    return described


def _of_lock(recipe: Recipe) -> Description | None:
    locked, model = recipe.lock.checkpoint if recipe.lock else None, recipe.model
    return description.of_lock(locked, model.id, model.revision, str(recipe.lock_file))
