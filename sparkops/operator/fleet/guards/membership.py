"""Introduce guards and leader: each guard gets the key of its leader's orders, the leader the addresses of guards.

Keys pass through this process from the leader's guard to the others, over stdin of SSH, and are not stored here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkops.config.inventory import Fleet
from sparkops.errors import PlanRefused
from sparkops.names import NODE_LABEL
from sparkops.node import host
from sparkops.node.agents.commands import CONTAINER, PEER_PORT
from sparkops.node.docker.commands import host_paths
from sparkops.node.member import Member
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards import leases, mismatch
from sparkops.operator.fleet.guards.leader import GuardConnection, connect_guard, leading
from sparkops.operator.fleet.guards.mismatch import Mismatch
from sparkops.operator.fleet.parallel import all_or_raise, on_each
from sparkops.serving.service_state import needed_nodes


@dataclass(frozen=True)
class GuardSettings:
    """What the inventory says to every guard.

    `monitoring`: where it serves figures, as `port`, and `digest`, the SHA-256 of the key (hex); None: nowhere.
    `webhook`: where it sends events, as `urls`; None: nowhere.
    """

    monitoring: Mapping[str, object] | None = None
    webhook: Mapping[str, object] | None = field(default=None, repr=False)

    @property
    def request(self) -> dict[str, Any]:
        """Return the settings as part of a request to a guard."""
        return {"monitoring": self.monitoring, "webhook": self.webhook}


def monitoring_port(port: int, key: str) -> Mapping[str, object]:
    """Return where guards serve figures to whoever sends this key."""
    return {"port": port, "digest": hashlib.sha256(key.encode()).hexdigest()}


def introduce(
    connected: Connected,
    gateway: str,
    settings: GuardSettings = GuardSettings(),
    former: Collection[str] | None = None,
    besides: Sequence[str] = (),
) -> None:
    """Make the guards of all connected nodes follow the one beside the gateway, and give it their addresses.

    The leader keeps the address of a node that does not answer. `former`: the earlier leaders whose keys guards keep;
    None: all. `besides`: addresses of an earlier gateway that still has requests. Raises the errors of all nodes at
    once.
    """
    fleet = connected.fleet
    others = [name for name in connected.members if name != gateway]
    addresses = (*addresses_of(connected.member(gateway)), *besides)
    sent = settings.request if former is None else {**settings.request, "former": sorted(former)}
    with leading(connected.member(gateway)) as leader:
        keys, leads = leader.keys_of(others), leader.node.name
        all_or_raise(
            on_each(
                others, lambda name: _join(leads, keys[name], connected.member(name), addresses, sent), connected.cancel
            )
        )
        peers = _addresses(fleet, (name for name in fleet.nodes if name != gateway))
        leader.set_peers(peers, besides, peers.keys() - connected.members, **settings.request)


def addresses_of(member: Member) -> tuple[str, ...]:
    """Return the addresses of a node, from which a gateway there sends requests. Raises NodeError."""
    return tuple(host.parse_addresses(member.node.run(host.ADDRESSES).stdout))


def dismiss(connected: Connected, gateway: str, node: str) -> None:
    """Make the guard beside `gateway` lead the fleet without `node`.

    Other nodes of the inventory stay if they have a guard or do not answer. Raises PlanRefused if a service needs
    `node`, and Busy during a swap.
    """
    others = [name for name in connected.fleet.nodes if name not in (gateway, node)]
    unknown = {name for name in others if name not in connected.members}
    peers = [name for name in others if name in unknown or leases.guarded(connected.member(name))]
    with leading(connected.member(gateway)) as leader:
        leader.set_peers(_addresses(connected.fleet, peers), unread=unknown)


def _addresses(fleet: Fleet, names: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Return address and port of the guards of these nodes."""
    return {name: (fleet.engine_address(name), PEER_PORT) for name in names}


def require_leader(connected: Connected, gateway: str) -> None:
    """Raise PlanRefused if another guard leads a service in the same or a newer term than the one beside `gateway`.

    The inventory of this client may name the wrong node: a second leader must not start.
    """
    terms = {name: node_terms for name, node_terms in connected.all(_terms).items() if node_terms}
    gateway_terms = terms.pop(gateway, {})
    for node, led in terms.items():
        if services := sorted(service for service, term in led.items() if term >= gateway_terms.get(service, 0)):
            raise _refused(mismatch.gateway_node(gateway, node, services))


def require_inventory(connected: Connected, gateway: str, guard: GuardConnection) -> None:
    """Raise PlanRefused where the inventory calls a node otherwise than the fleet, or names another gateway's node.

    `guard`: the one beside `gateway`. Every plan and next step would be about the wrong nodes.
    """
    connected.all(require_name)
    if not leases.guarded(connected.member(gateway)):
        require_leader(connected, gateway)
    elif (leader := guard.copies(lambda reply: str(reply["leader"]))) not in ("", gateway):
        raise _refused(mismatch.gateway_node(gateway, leader))


def require_name(member: Member) -> None:
    """Raise PlanRefused if a guard leads or runs services under another name of its node: it would lose them."""
    container = member.engine.container(CONTAINER)
    name = (container["Config"]["Labels"] or {}).get(NODE_LABEL, member.name) if container else member.name
    if container is None or not container["State"]["Running"] or name == member.name:
        return
    with connect_guard(member) as guard:
        journals = [guard.state(service).journal for service in guard.services()]
    led = [journal.service for journal in journals if journal.leader == name and journal.deployments]
    if led or any(name in needed_nodes(journal, {name}) for journal in journals):
        raise _refused(mismatch.node_name(member.name, name), member.name)


def _refused(found: Mismatch, node: str = "") -> PlanRefused:
    return PlanRefused(f"{node}: {found.problem}" if node else found.problem, next_step=found.next_step)


def _terms(member: Member) -> Mapping[str, int]:
    """Return the services that a node leads; none without a guard."""
    if not leases.guarded(member):
        return {}
    with connect_guard(member) as opened:
        return opened.terms()


def _join(
    leader: str, keyed: tuple[str, int], member: Member, gateway: Sequence[str], settings: Mapping[str, Any]
) -> None:
    key, term = keyed
    with connect_guard(member) as opened:
        paths = sorted(host_paths(member.config))
        opened.join(leader, key, term, gateway, paths=paths, **settings)
