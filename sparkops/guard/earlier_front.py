"""A service that an earlier version deployed without a gateway: clients call its engine, and it can only be stopped."""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.names import Slot
from sparkops.swap import effects
from sparkops.swap.effects import FrontEffect
from sparkops.swap.fleet_state import GatewayView
from sparkops.swap.model import Deployment


@dataclass
class EarlierFront:
    """What the leader sees in place of a gateway: `active` has the traffic until the service is stopped.

    Whether it answers is unknown, so nothing moves. Requests in progress are not counted: they end with the engine.
    """

    active: Slot | None

    def look(
        self,
        deployments: tuple[Deployment, ...],
        *,
        swapping: bool,  # noqa: ARG002 - nothing is tested
        baked: Deployment | None = None,  # noqa: ARG002
        fresh: bool = False,  # noqa: ARG002
    ) -> GatewayView:
        """Return that every release is in its slot."""
        slots = {item.slot: item.release for item in deployments}
        return GatewayView(active=self.active, slots=slots, open=dict.fromkeys(slots, 0))

    def execute(self, effect: FrontEffect) -> str:
        """Note where the traffic would be."""
        if isinstance(effect, effects.SwitchTraffic):
            self.active = effect.deployment.slot if effect.deployment else None
        return ""

    def forget(self) -> None:
        """There is nothing to remove."""

    def close(self) -> None:
        """There is nothing to close."""
