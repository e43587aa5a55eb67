"""What every verb is given: the global options, and the way from a name to a file."""

from __future__ import annotations

import difflib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.errors import UsageError

if TYPE_CHECKING:
    from sparkops.config.inventory import Fleet
    from sparkops.config.recipe import Recipe
    from sparkops.fleet.keep import Keep


MOST = 1_000_000  # as in config/smoke.py, which --help does not load


def in_range(number: float | None) -> float | None:
    """Refuse an option that is no amount of seconds or GiB. click's own range lets nan pass. Raises BadParameter."""
    if number is not None and not 0 <= number <= MOST:
        raise typer.BadParameter(f"{number} is not in the range 0<=x<={MOST}.")
    return number


WAIT = Annotated[
    float, typer.Option("--wait", callback=in_range, help="Seconds to wait for the lock; its holder is reported.")
]


@dataclass(frozen=True)
class Settings:
    """The global options."""

    inventory: Path
    verbose: bool

    def fleet(self) -> Fleet:
        """The inventory. Raises ConfigError."""
        from sparkops.config import inventory

        if not self.inventory.exists():
            step = "Make one with `sparkops init`, or name yours with --inventory or SPARKOPS_INVENTORY."
            raise UsageError(f"there is no inventory {self.inventory}", next_step=step)
        return inventory.load(self.inventory)

    def recipe(self, named: str, fleet: Fleet | None = None, changes: Sequence[str] = ()) -> Recipe:
        """The recipe in that file, or the one of that name that comes with sparkops. Raises ConfigError, UsageError."""
        from sparkops.config import recipe

        return recipe.load(find_recipe(named), fleet.nodes if fleet else None, changes)


def find_recipe(named: str) -> Path:
    """The file of a recipe: a path, or the name of one in ./recipes or that comes with sparkops. Raises UsageError."""
    if Path(named).is_file():
        return Path(named)
    known = known_recipes()
    name = Path(named).name.removesuffix(".yaml")
    if name in known and len(Path(named).parts) <= 2:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    step = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(f"there is no recipe {named}", next_step=f"{step}All recipes: sparkops recipes")


def known_recipes() -> dict[str, Path]:
    """The recipes by name, in order: those that come with sparkops, and those in ./recipes, which go before."""
    from sparkops.config import shipped

    files = [*shipped.directory("recipes").glob("*.yaml"), *Path("recipes").glob("*.yaml")]
    return dict(sorted({file.stem: file for file in files}.items()))


def state_directory() -> Path:
    """Where this machine keeps what a person may want to read later. Nothing that matters is only here."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "sparkops"


def keep_of(release: str) -> Keep:
    """Where what is left of a failed start of `release` is saved."""
    from sparkops.fleet.keep import Keep

    def shown(path: Path) -> str:
        return f"{socket.gethostname()}: {path.absolute()}"

    return Keep(lambda node: state_directory() / "failures" / f"{release}-{node}", there=True, shown=shown)
