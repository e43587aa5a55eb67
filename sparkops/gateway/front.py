"""Deployments at the gateway: where their replicas answer, and the command of each effect. Pure."""

from __future__ import annotations

from sparkops.command import Command
from sparkops.gateway import commands
from sparkops.gateway.commands import Endpoint
from sparkops.names import release_of_container
from sparkops.serving import engine_spec
from sparkops.swap.effects import CutRequests, FrontEffect, PointSlot, SwitchTraffic
from sparkops.swap.model import Deployment


def endpoints(deployed: Deployment) -> tuple[Endpoint, ...]:
    """Return where each replica answers. Raises ValueError for a spec of another version."""
    specs = ((rank, engine_spec.of(rank)) for rank in deployed.heads)
    # While replicas are replaced one after another, each may be of another release than the deployment.
    return tuple(
        Endpoint(spec.address, spec.rank(rank.node).port, release_of_container(rank.container)) for rank, spec in specs
    )


def gateway_command(effect: FrontEffect, service: str) -> Command:
    """Return the command that executes an effect on a service at the gateway."""
    match effect:
        case PointSlot(deployment=to):
            return commands.point(service, to.slot, to.release, endpoints(to))
        case SwitchTraffic(deployment=to, hold=hold, stopped=stopped):
            down = commands.hold(service, hold) if hold else commands.switch_down(service, stopped=stopped)
            return commands.switch(service, to.slot, to.release) if to else down
        case CutRequests(deployment=of, left=left):
            return commands.cut(service, of.slot, left=left)
