"""Examine every node that can be reached, and send packets between pairs that are joined."""

from __future__ import annotations

import time

from sparkops.errors import CommandFailed, NotReady, SparkopsError
from sparkops.facts import firewall, host, machine
from sparkops.fleet import observe, preflight
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.progress import Event, Tell, silent
from sparkops.plan import doctor, pairs
from sparkops.plan.diagnosis import Diagnosis
from sparkops.plan.doctor import Examined


def diagnose(connected: Connected, tell: Tell = silent) -> Diagnosis:
    """Look at all of it. Changes nothing, and nodes that serve do not notice."""
    gateway = connected.fleet.gateway is not None
    outcomes = connected.on_each(lambda member: _examine(member, tell, gateway=gateway))
    seen: dict[str, Examined | SparkopsError] = {**connected.unreachable, **outcomes}
    order = [name for name in connected.fleet.nodes if name in seen]
    facts = {name: node.fabric for name in order if isinstance(node := seen[name], Examined)}
    found = pairs.pairs(facts, connected.fleet.nodes, connected.fleet.fabric)
    tried = [
        finding
        for pair, made in pairs.to_try(found)
        for finding in preflight.run(connected, made, pair.facts, tell=tell)
    ]
    return doctor.diagnose(order, seen, found, tried)


def _examine(member: Member, tell: Tell, *, gateway: bool) -> Examined:
    tell(Event(member.name, "looking", lasting=False))
    before_s = time.time()
    try:
        said = host.parse(member.node.run(host.PREFLIGHT).stdout)
        after_s = time.time()
        engines = observe.containers(member) if gateway else ()
        return Examined(
            name=member.name,
            config=member.config,
            host=said,
            machine=machine.parse(member.node.run(machine.query()).stdout),
            fabric=preflight.facts_of(member),
            docker=member.engine.version["Version"],
            skew_s=doctor.skew(before_s, said.now_s, after_s),
            containers=engines,
            filtered=_filtered(member) if any(engine.callers for engine in engines) else None,
        )
    except ValueError as error:
        raise NotReady(member.name, f"its shell answered what cannot be read: {error}") from None


def _filtered(member: Member) -> frozenset[int] | None:
    """Return the ports that the guard has closed; None where it cannot report them, which is a finding itself."""
    try:
        return firewall.parse(member.node.run(firewall.QUERY).stdout)
    except CommandFailed:
        return None
