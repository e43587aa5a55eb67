"""Where recipes fit on a fleet: the arithmetic of a first deploy, for many recipes from one observation. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkops.config.fabric import FabricRules
from sparkops.config.recipe import Recipe
from sparkops.config.release import Release, recipe_named
from sparkops.errors import NodesFailed, PlanRefused, SparkopsError
from sparkops.names import Slot
from sparkops.operator.deploy.groups import groups, placed
from sparkops.operator.deploy.place import Place, Suitable
from sparkops.operator.deploy.plan import DeployOptions, Plan
from sparkops.operator.deploy.preconditions import Current, Observed, unsuitable
from sparkops.swap.model import Mode


def suitable(recipe: Recipe, observed: Mapping[str, Observed], rules: FabricRules) -> Suitable:
    """Return where a recipe fits on the observed nodes, without its image and weights."""
    size = recipe.serve.ranks
    release = Release(recipe, "")  # no image is looked for
    places, now, reasons = list[Place](), list[Place](), dict[str, None]()
    # What takes a node's memory now may end, so that its total counts.
    asked = recipe.nodes or [*observed]
    for names in groups({name: _total_gib(observed.get(name)) for name in asked}, size):
        option = _first(release, names, observed, rules)
        problems = [*_problems(option)] if option else [f"{' and '.join(names)}: not read"]
        reasons |= dict.fromkeys(map(str, problems))
        if option and not problems:
            place = tuple(rank.node for rank in option.ranks)
            places.append(place)
            now += [place] if all(site.remaining_gib(pool) >= 0 for site in option.sites for pool in site.pools) else []
    if len(asked) < size:
        reasons[f"{size} nodes needed, available: {', '.join(asked) or 'none'}"] = None
    return Suitable(tuple(places), tuple(now), _running(recipe, observed), () if places else tuple(reasons))


def _first(release: Release, names: Place, observed: Mapping[str, Observed], rules: FabricRules) -> Plan | None:
    """Return the plan of a first deploy on these nodes; None if one of them was not read."""
    if not all(name in observed for name in names):
        return None
    ranks = placed(release, Slot.BLUE, {name: observed[name] for name in names})
    nodes = {rank.node: observed[rank.node] for rank in ranks}
    return Plan(Mode.FIRST, ranks, nodes, Current(), DeployOptions(), rules)


def _total_gib(node: Observed | None) -> float:
    return node.host.memory_total_gib if node else 0.0


def _problems(option: Plan) -> Iterator[SparkopsError]:
    """Yield what stands against a place even if nothing else ran there."""
    refused = [error for site in option.sites for error in unsuitable(site.rank, site.node)]
    yield from refused
    if not refused:
        try:
            _ = option.networks
        except (PlanRefused, NodesFailed) as error:
            yield error


def _running(recipe: Recipe, observed: Mapping[str, Observed]) -> tuple[str, ...]:
    return tuple(
        name
        for name, node in observed.items()
        if any(item.running and recipe_named(item.release) == recipe.name for item in node.containers)
    )
