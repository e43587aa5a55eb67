"""Where recipes fit, from what their nodes say: `recipes --fits`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkops.config.recipe import Recipe
from sparkops.errors import SparkopsError
from sparkops.operator.cli.named import load_fleet
from sparkops.operator.cli.options import Settings
from sparkops.operator.deploy import observe
from sparkops.operator.deploy.place import Suitable
from sparkops.operator.deploy.preconditions import Observed
from sparkops.operator.deploy.suitable import suitable
from sparkops.operator.fleet.connected import connect


def find(settings: Settings, asked: Sequence[Recipe]) -> tuple[Mapping[str, Suitable], list[SparkopsError]]:
    """Return where the recipes fit, and why nodes could not be read. Raises ConfigError, UsageError."""
    fleet = load_fleet(settings)
    links = len(fleet.nodes) > 1 and any(recipe.serve.ranks > 1 for recipe in asked)
    with connect(fleet, required=False) as connected:
        outcomes = {**connected.unreachable, **observe.of_fleet(connected, links=links)}
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, SparkopsError)]
    # In the order of the inventory, which is that of a pair's ranks.
    observed = {name: found for name in fleet.nodes if isinstance(found := outcomes[name], Observed)}
    return {recipe.name: suitable(recipe, observed, fleet.fabric) for recipe in asked}, errors
