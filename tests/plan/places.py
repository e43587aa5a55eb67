"""Releases in their slots, for the tests of what is planned around them."""

from __future__ import annotations

from typing import Any

from sparkops.plan.journal import Front, Placed
from sparkops.release import Slot
from tests.examples import RECIPE

GATEWAY = Front(node="n1", address="10.0.0.1")
PORTS = {Slot.BLUE: 8001, Slot.GREEN: 8002}


def placed(release: str, slot: str, node: str = "n1", **changes: Any) -> Placed:
    """A release of the service chat in a slot."""
    values = {
        "release": release,
        "slot": slot,
        "node": node,
        "address": "10.0.0.1",
        "port": PORTS[Slot(slot)],
        "container": f"{release}-{slot}-r0",
        "recipe": RECIPE,
    }
    return Placed.model_validate({**values, **changes})
