"""The inventory that the global options name."""

from __future__ import annotations

from collections.abc import Sequence

from sparkops.cli.options import Settings
from sparkops.config import inventory
from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.errors import UsageError


def load_fleet(settings: Settings) -> Fleet:
    """Return the inventory that the global options name. Raises ConfigError, UsageError."""
    if not settings.inventory.exists():
        step = "Create one with `sparkops init`, or pass --inventory FILE."
        raise UsageError(f"inventory not found: {settings.inventory}", next_step=step)
    return inventory.load(settings.inventory)


def copy_targets(fleet: Fleet, recipe: Recipe, source: str, named: Sequence[str] | None) -> list[str]:
    """Return the nodes that get a copy: `named`, else those of the recipe, else all. Raises UsageError without one."""
    targets = [name for name in named or recipe.nodes or fleet.nodes if name != source]
    if not targets:
        raise UsageError(f"no node to copy to besides {source}", next_step="Name others with --to.")
    return targets
