"""Names of containers that no recipe decides. Modules that read a node import them without a recipe."""

from __future__ import annotations

from enum import StrEnum

LABEL = "sparkops."
INPUTS = f"{LABEL}inputs"
"""Label of an image and its containers: the digest of everything that goes into it."""
GUARD, GATEWAY = "guard", "gateway"
"""Names of their images and builds, in place of a recipe's name."""


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
