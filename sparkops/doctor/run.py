"""Examine every reachable node, and send packets between pairs of nodes with a link."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from sparkops.agents.container import answered
from sparkops.deploy import observe
from sparkops.docker.places import CONTAINER, GATEWAY
from sparkops.doctor import machine, reachability, rules
from sparkops.doctor.diagnosis import Diagnosis, FixRow
from sparkops.doctor.fixes import Fix, StartedAgent
from sparkops.doctor.hub_login import HubLogin
from sparkops.doctor.node_facts import NodeFacts
from sparkops.errors import CommandFailed, NodeError, NotReady, SparkopsError
from sparkops.network import firewall, preflight, topology
from sparkops.network.finding import Finding
from sparkops.nodes import host
from sparkops.nodes.connected import Connected, Member
from sparkops.nodes.progress import Event, OnEvent, silent
from sparkops.status.join import join
from sparkops.status.observation import NodeReport
from sparkops.status.picture import Status
from sparkops.status.read import Reader
from sparkops.status.survey import reported
from sparkops.weights import models
from sparkops.weights.checkpoint import ModelDirectory

CONNECT_S = 3.0


@dataclass(frozen=True)
class DoctorResult:
    """The diagnosis, and the status that it is based on."""

    diagnosis: Diagnosis
    status: Status


def diagnose(connected: Connected, report: OnEvent = silent, login: HubLogin | None = None) -> DoctorResult:
    """Examine all nodes and pairs. Changes nothing and does not disturb running services."""
    fleet = connected.fleet
    outcomes = connected.on_each(lambda member: _examine(member, report, gateway=fleet.gateway is not None))
    outcomes = {**connected.unreachable, **outcomes}
    results = {name: outcomes[name] for name in fleet.nodes if name in outcomes}
    nodes = [node for node in results.values() if isinstance(node, NodeFacts)]
    joined = topology.pairs({node.name: node.fabric for node in nodes}, fleet.nodes, fleet.fabric)
    live = [
        finding
        for pair, ranks in topology.pairs_to_test(joined)
        for finding in preflight.run(connected, ranks, pair.facts, report=report)
    ]
    reports: dict[str, NodeReport | SparkopsError] = {**connected.unreachable, **_reports(connected)}
    status = join(list(results), reports, fleet.gateway)
    live += reachability.findings(nodes, reports, status.drift)
    live += reachability.unresolved(status.drift)
    live += reachability.watched(status.findings)
    live += reachability.cordoned(status.nodes)
    live += _closed(status)
    live += login.findings(nodes) if login else ()
    return DoctorResult(rules.diagnose(results, joined, live), status)


def _reports(connected: Connected) -> dict[str, NodeReport | SparkopsError]:
    with closing(Reader(connected.fleet, connected.members, connected.fleet.gateway)) as reader:
        return {name: reported(name, outcome) for name, outcome in reader.read().items()}


def fix_all(connected: Connected, due: Sequence[Fix]) -> list[FixRow]:
    """Run the fixes one by one, and wait for what they start. Return a row with the output or the error of each."""
    rows = []
    for fix in due:
        member = connected.member(fix.finding.node)
        try:
            detail, succeeded = member.node.run(fix.command).stdout.strip(), True
            if fix.started:
                answered(member, fix.started.container, partial(_ask, member, fix.started))
        except NodeError as error:
            detail, succeeded = error.problem, False
        rows.append(FixRow(node=member.name, code=fix.finding.code, command=fix.words, done=succeeded, detail=detail))
    return rows


def _ask(member: Member, started: StartedAgent) -> None:
    """Raise NodeError or ValueError until the container is ready."""
    started.check(member.node.run(started.answers).stdout)


def _closed(status: Status) -> Iterator[Finding]:
    """Connect to every service behind a running gateway as a client does, and yield the closed addresses."""
    gateway = status.gateway
    if gateway is None or gateway.state != "up":
        return
    for url in (service.url for service in status.services if service.url):
        parts = urlsplit(url)
        try:
            socket.create_connection((parts.hostname, parts.port), CONNECT_S).close()
        except OSError as error:
            yield reachability.closed(gateway.node, url, error.strerror or str(error))


def _examine(member: Member, report: OnEvent, *, gateway: bool) -> NodeFacts:
    report(Event(member.name, "examining", lasting=False))
    before_s = time.time()
    try:
        facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
        after_s = time.time()
        ranks = observe.containers(member)
        return NodeFacts(
            name=member.name,
            config=member.config,
            host=facts,
            machine=machine.parse(member.node.run(machine.query()).stdout),
            fabric=preflight.facts_of(member),
            docker=member.engine.version["Version"],
            skew_s=rules.skew(before_s, facts.now_s, after_s),
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
    inspects = {name: member.engine.container(name) for name in (CONTAINER, GATEWAY)}
    return {name: inspect["State"]["Status"] for name, inspect in inspects.items() if inspect}


def _weights(member: Member) -> ModelDirectory | NodeError:
    try:
        return models.look(member)
    except NodeError as error:
        return error
