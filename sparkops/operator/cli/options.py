"""Options of all verbs and of several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sparkops import units

MOST = 1_000_000  # as in config/fields.py, which --help does not load


@dataclass(frozen=True)
class Settings:
    """The global options."""

    inventory: Path = Path("inventory.yaml")
    verbose: bool = False


def in_range(number: float | None) -> float | None:
    """Refuse an option that is no amount of seconds or GiB. click's own range lets nan pass. Raises BadParameter."""
    if number is not None and not 0 <= number <= MOST:
        raise typer.BadParameter(f"expected a number from 0 to {MOST}; got {number}")
    return number


def seconds(text: str | float) -> float:
    """Return a time span in seconds: a number of them, or such as 90s, 10m or 1h30m. Raises BadParameter."""
    try:
        return units.seconds(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def whole(least: int, most: int | None = None) -> Callable[[str | int], int]:
    """Return a parser of a whole number from `least` to `most`, which raises BadParameter in words of its own."""
    expected = f"a whole number from {least} to {most}" if most is not None else f"a whole number of at least {least}"

    def number(text: str | int) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            raise typer.BadParameter(f"expected {expected}; got {str(text)!r}")
        return value

    return number


RECIPE = Annotated[str, typer.Argument(metavar="RECIPE", help="File or name of a recipe")]
SERVICE = Annotated[str, typer.Argument(metavar="SERVICE", help="Service, as shown by `status`")]
NODE = Annotated[
    str | None, typer.Option("--node", "-n", metavar="NODE", help="Node to use; default: the first of the recipe")
]
NODES = Annotated[list[str] | None, typer.Option("--node", "-n", metavar="NODE", help="Limit to NODE (repeatable)")]
SOURCE = Annotated[str, typer.Option("--from", metavar="NODE", help="Node to copy from")]
TARGETS = Annotated[list[str] | None, typer.Option("--to", metavar="NODE", help="Copy only to NODE (repeatable)")]
WITHOUT = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="NODE", help="Give up a lost node: its engines stay down (repeatable)"),
]
SET = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the recipe (repeatable)")
]
MODE = Annotated[
    str | None, typer.Option("--mode", metavar="MODE", help="beside, across, rolling or in-place; by itself the safest")
]
BLUE_GREEN = Annotated[
    bool, typer.Option("--blue-green", show_default=False, help="Swap behind the gateway; every deploy does")
]
REPLICAS = Annotated[str | None, typer.Option("--replicas", metavar="N", help="Run N copies of it, or `all` that fit")]
ALLOW_DOWNTIME = Annotated[bool, typer.Option("--allow-downtime", help="Allow downtime if no other mode fits")]
WAIT = Annotated[
    float,
    typer.Option(
        "--wait",
        parser=seconds,
        callback=in_range,
        show_default=False,
        metavar="TIME",
        help="Wait up to TIME (600, 10m) for another change; default: 0",
    ),
]
TOKEN_FILE = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File with the hub's token, mode 0600", envvar="HF_TOKEN_PATH")
]
ENDPOINT = Annotated[str, typer.Option(metavar="URL", help="Mirror of the hub", envvar="HF_ENDPOINT")]
DETACH = Annotated[bool, typer.Option("--detach", help="Return once the fleet has accepted; do not follow")]
DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="Print the steps without running them")]
YES = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")]
MAINTENANCE = "maintenance"
"""The reason of a hold or a cordon without another one."""
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object")]
