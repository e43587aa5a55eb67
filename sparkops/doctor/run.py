"""Examine every node that can be reached, and send packets between pairs that are joined."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from sparkops.deploy import observe
from sparkops.docker.places import CONTAINER, GATEWAY
from sparkops.doctor import machine, reachability, rules
from sparkops.doctor.diagnosis import Diagnosis, FixRow
from sparkops.doctor.examined import Examined
from sparkops.doctor.fixes import Fix
from sparkops.doctor.hub_login import HubLogin
from sparkops.errors import CommandFailed, NodeError, NotReady, SparkopsError
from sparkops.network import firewall, preflight, topology
from sparkops.network.finding import Finding
from sparkops.nodes import host
from sparkops.nodes.connected import Connected, Member
from sparkops.nodes.progress import Event, Tell, silent
from sparkops.status.join import join
from sparkops.status.observation import NodeReport
from sparkops.status.picture import Status
from sparkops.status.read import Reader
from sparkops.status.survey import reported
from sparkops.weights import models
from sparkops.weights.checkpoint import ModelDirectory

CONNECT_S = 3.0


@dataclass(frozen=True)
class Seen:
    """The diagnosis, and the status that it is based on."""

    diagnosis: Diagnosis
    status: Status


def diagnose(connected: Connected, tell: Tell = silent, login: HubLogin | None = None) -> Seen:
    """Examine all nodes and pairs. Changes nothing and does not disturb running services."""
    fleet = connected.fleet
    outcomes = connected.on_each(lambda member: _examine(member, tell, gateway=fleet.gateway is not None))
    seen: dict[str, Examined | SparkopsError] = {**connected.unreachable, **outcomes}
    order = [name for name in fleet.nodes if name in seen]
    nodes = [node for name in order if isinstance(node := seen[name], Examined)]
    found = topology.pairs({node.name: node.fabric for node in nodes}, fleet.nodes, fleet.fabric)
    tried = [
        finding
        for pair, made in topology.pairs_to_test(found)
        for finding in preflight.run(connected, made, pair.facts, tell=tell)
    ]
    reports: dict[str, NodeReport | SparkopsError] = {**connected.unreachable, **_reports(connected)}
    status = join(order, reports, fleet.gateway)
    tried += reachability.findings(nodes, reports, status.drift)
    tried += _closed(status)
    tried += login.findings(nodes) if login else ()
    return Seen(rules.diagnose(order, seen, found, tried), status)


def _reports(connected: Connected) -> dict[str, NodeReport | SparkopsError]:
    """Return what `status` reads of the connected nodes."""
    with closing(Reader(connected.fleet, connected.members, connected.fleet.gateway)) as reader:
        return {name: reported(name, outcome) for name, outcome in reader.read().items()}


def fix_all(connected: Connected, due: Sequence[Fix]) -> list[FixRow]:
    """Run the fixes one by one, and return a row with the output or the error of each."""
    return [_fixed(connected.member(one.finding.node), one) for one in due]


def _fixed(member: Member, due: Fix) -> FixRow:
    row = FixRow(node=member.name, code=due.finding.code, command=due.words, done=True)
    try:
        return row.model_copy(update={"detail": member.node.run(due.command).stdout.strip()})
    except NodeError as error:
        return row.model_copy(update={"done": False, "detail": error.problem})


def _closed(status: Status) -> Iterator[Finding]:
    """Connect to every service behind a running gateway as a client does, and yield the closed addresses."""
    gateway = status.gateway
    for url in (service.url for service in status.services if service.url) if gateway else ():
        if gateway and gateway.state == "up" and (why := _connects(urlsplit(url))):
            yield reachability.closed(gateway.node, url, why)


def _connects(url: SplitResult) -> str:
    """Return why no connection can be made; empty if one can."""
    try:
        with socket.create_connection((url.hostname, url.port), CONNECT_S):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _examine(member: Member, tell: Tell, *, gateway: bool) -> Examined:
    tell(Event(member.name, "examining", lasting=False))
    before_s = time.time()
    try:
        said = host.parse(member.node.run(host.PREFLIGHT).stdout)
        after_s = time.time()
        ranks = observe.containers(member)
        return Examined(
            name=member.name,
            config=member.config,
            host=said,
            machine=machine.parse(member.node.run(machine.query()).stdout),
            fabric=preflight.facts_of(member),
            docker=member.engine.version["Version"],
            skew_s=rules.skew(before_s, said.now_s, after_s),
            containers=ranks,
            filtered=_filtered(member) if any(rank.callers or rank.peers for rank in ranks) else None,
            gateway=gateway,
            agents=_agents(member),
            weights=_weights(member),
        )
    except ValueError as error:
        raise NotReady(member.name, f"unexpected output of the query: {error}") from None


def _filtered(member: Member) -> frozenset[int] | None:
    """Return the ports that the guard has closed; None where it cannot report them, which is a finding itself."""
    try:
        return firewall.closed_ports(member.node.run(firewall.RULESET).stdout)
    except CommandFailed:
        return None


def _agents(member: Member) -> dict[str, str]:
    found = {name: member.engine.container(name) for name in (CONTAINER, GATEWAY)}
    return {name: facts["State"]["Status"] for name, facts in found.items() if facts}


def _weights(member: Member) -> ModelDirectory | NodeError:
    try:
        return models.look(member)
    except NodeError as error:
        return error
