"""Names of containers that no recipe decides, and the names that a mistyped one may mean.

Modules that read a node import them without a recipe.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum

LABEL = "sparkops."
INPUTS = f"{LABEL}inputs"
"""Label of an image and its containers: the digest of everything that goes into it."""
GUARD, GATEWAY = "guard", "gateway"
"""Names of their images and builds, in place of a recipe's name."""
NODE_LABEL = f"{LABEL}node"
"""Label of a guard's container: the name by which the fleet knows its node."""


class Slot(StrEnum):
    """The two slots of a service, which its releases use in turn."""

    BLUE = "blue"
    GREEN = "green"

    @property
    def other(self) -> Slot:
        return Slot.GREEN if self is Slot.BLUE else Slot.BLUE


def backend(service: str, slot: Slot) -> str:
    """Return HAProxy's name of one slot of one service."""
    return f"be_{service}_{slot}"


def waiting(service: str) -> str:
    """Return HAProxy's name of the backend in which requests of a service wait."""
    return f"be_{service}_wait"


def host_port(host: str, port: int) -> str:
    """Return host and port as a URL has them, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


MOST_HINTS = 3
"""Limit of the names that a shortened one may mean."""


def near_names(name: str, known: Iterable[str], likeness: float = 0.6) -> list[str]:
    """Return the known names that begin with an unknown one, else the one that is most like it."""
    names = list(known)
    longer = [one for one in names if name and one.startswith(name)]
    return longer[:MOST_HINTS] or get_close_matches(name, names, n=1, cutoff=likeness)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question for an unknown name, which a further sentence may follow; no text without a near one."""
    near = near_names(name, known)
    return f"Did you mean {' or '.join(near)}? " if near else ""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 model, 2 models."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def release_of_container(container: str) -> str:
    """Return the release in the name of a rank's container, as `Rank.container` of config/release.py makes it."""
    return container.rpartition("-")[0].rpartition("-")[0]
