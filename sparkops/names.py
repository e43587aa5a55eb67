"""Names that a container of a node carries, apart from what a recipe decides: reading a node loads no recipe."""

from __future__ import annotations

from enum import StrEnum

LABEL = "sparkops."
GUARD, GATEWAY = "guard", "gateway"
"""What their images and builds are called, where a recipe's name stands otherwise."""


class Slot(StrEnum):
    """The two places that releases of one service take in turn."""

    BLUE = "blue"
    GREEN = "green"

    @property
    def other(self) -> Slot:
        """Blue's is green, green's is blue."""
        return Slot.GREEN if self is Slot.BLUE else Slot.BLUE


def backend(service: str, slot: Slot) -> str:
    """Return HAProxy's name of one slot of one service."""
    return f"be_{service}_{slot}"


def waiting(service: str) -> str:
    """Return HAProxy's name of the place where requests of a service wait."""
    return f"be_{service}_wait"
