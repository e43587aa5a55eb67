"""Examine every reachable node, send packets between linked nodes, verify the hub's token, and run fixes."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from urllib.parse import urlsplit

import requests

from sparkops.config.node import NodeConfig
from sparkops.errors import CommandFailed, NodeError, NotReady, SparkopsError
from sparkops.node import host
from sparkops.node.agents.container import answered
from sparkops.node.docker.places import CONTAINER, GATEWAY
from sparkops.node.member import Member
from sparkops.node.network import firewall
from sparkops.node.network.finding import Finding
from sparkops.node.progress import Event, OnEvent, silent
from sparkops.operator.build.weights import models
from sparkops.operator.build.weights.checkpoint import ModelDirectory
from sparkops.operator.deploy import observe
from sparkops.operator.deploy.agents import packages
from sparkops.operator.deploy.agents.packages import AgentPackages
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.network import preflight, topology
from sparkops.operator.status.doctor import rules
from sparkops.operator.status.doctor.diagnosis import Diagnosis, FixRow
from sparkops.operator.status.doctor.facts import NodeFacts, machine_query, parse_machine
from sparkops.operator.status.doctor.repairs import Repair, StartedAgent
from sparkops.operator.status.join import join
from sparkops.operator.status.observation import NodeReport, reported
from sparkops.operator.status.picture import Status
from sparkops.operator.status.read import Reader

CONNECT_S = 3.0


@dataclass(frozen=True)
class DoctorResult:
    """The diagnosis, and the status that it is based on."""

    diagnosis: Diagnosis
    status: Status


def diagnose(
    connected: Connected, report: OnEvent = silent, login: HubLogin | None = None, *, updates: bool = False
) -> DoctorResult:
    """Examine all nodes and pairs. Changes nothing and does not disturb running services.

    `updates`: compare the packages of the agents with Debian's archive, from each node.
    """
    fleet, gateway = connected.fleet, connected.fleet.gateway is not None
    outcomes = connected.on_each(lambda member: _examine(member, report, gateway=gateway, updates=updates))
    outcomes = {**connected.unreachable, **outcomes}
    results = {name: outcomes[name] for name in fleet.nodes if name in outcomes}
    nodes = [node for node in results.values() if isinstance(node, NodeFacts)]
    joined = topology.pairs({node.name: node.fabric for node in nodes}, fleet.nodes, fleet.fabric)
    live = [
        finding
        for pair, ranks in topology.pairs_to_test(joined)
        for finding in preflight.run(connected, ranks, pair.facts, report=report)
    ]
    with closing(Reader(fleet, connected.members)) as reader:
        read = {name: reported(name, outcome) for name, outcome in reader.read().items()}
    reports: dict[str, NodeReport | SparkopsError] = {**connected.unreachable, **read}
    status = join(list(results), reports, fleet.gateway)
    live += rules.reached(nodes, reports, status.drift)
    live += rules.unresolved(status.drift)
    live += rules.watched(status.findings)
    live += rules.cordoned(status.nodes)
    live += closed_addresses(status)
    live += login.findings(nodes) if login else ()
    return DoctorResult(rules.diagnose(results, joined, live), status)


def closed_addresses(status: Status) -> Iterator[Finding]:
    """Connect to every service behind a running gateway as a client does, and yield the closed addresses."""
    gateway = status.gateway
    if gateway is None or gateway.state != "up":
        return
    for url in (service.url for service in status.services if service.url):
        parts = urlsplit(url)
        try:
            socket.create_connection((parts.hostname, parts.port), CONNECT_S).close()
        except OSError as error:
            yield rules.closed(gateway.node, url, error.strerror or str(error))


def _examine(member: Member, report: OnEvent, *, gateway: bool, updates: bool) -> NodeFacts:
    report(Event(member.name, "examining", lasting=False))
    before_s = time.time()
    try:
        of_host = host.parse(member.node.run(host.PREFLIGHT).stdout)
        after_s = time.time()
        ranks = observe.containers(member)
        return NodeFacts(
            name=member.name,
            config=member.config,
            host=of_host,
            machine=parse_machine(member.node.run(machine_query()).stdout),
            fabric=preflight.facts_of(member),
            docker=member.engine.version["Version"],
            skew_s=rules.skew(before_s, of_host.now_s, after_s),
            containers=ranks,
            filtered=_filtered(member) if any(rank.callers or rank.peers for rank in ranks) else None,
            gateway=gateway,
            agents=_agents(member),
            weights=_weights(member),
            packages={name: packages_of(member, name, image) for name, image in _running(member)} if updates else {},
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


def _running(member: Member) -> Iterator[tuple[str, str]]:
    """Yield the name and the image of each agent that runs."""
    for name in (CONTAINER, GATEWAY):
        inspect = member.engine.container(name)
        if inspect and inspect["State"]["Running"]:
            yield name, inspect["Image"]


def packages_of(member: Member, container: str, image: str) -> AgentPackages | NodeError:
    """Return the packages of an agent, compared with Debian's archive, or why they are unknown."""
    try:
        installed = packages.parse_installed(member.node.run(packages.list_installed(container)).stdout)
        return AgentPackages(installed, packages.parse_updates(member.node.run(packages.list_updates(image)).stdout))
    except NodeError as error:
        return error


def _weights(member: Member) -> ModelDirectory | NodeError:
    try:
        return models.look(member)
    except NodeError as error:
        return error


HUB = "https://huggingface.co"
HERE = "this machine"
HUB_S = 5.0
MAKE_ONE = "Create a token (type: read) at the hub, save it in a file of mode 600, set HF_TOKEN_PATH to the file."


@dataclass(frozen=True)
class HubLogin:
    """The operator's token and the URL of another hub; empty without one."""

    token: str = field(default="", repr=False)
    endpoint: str = ""

    def findings(self, nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
        """Verify the token at the hub. Without a token, yield a finding if weights are still to be downloaded."""
        if self.token:
            yield from self._refused()
            return
        directories = [node.weights for node in nodes if isinstance(node.weights, ModelDirectory)]
        checkpoints = (checkpoint for directory in directories for checkpoint in directory.checkpoints.values())
        if nodes and len(directories) == len(nodes) and not any(item.complete for item in checkpoints):
            names = ", ".join(node.name for node in nodes)
            problem = f"no token is configured, and no node has a complete model: {names}"
            yield rules.HUB_LOGIN.at(HERE, problem, MAKE_ONE, severity=rules.WARNING)

    def _refused(self) -> Iterator[Finding]:
        """Yield a finding for a refused token. Redirects are not followed: they would send the token elsewhere."""
        url = f"{(self.endpoint or HUB).rstrip('/')}/api/whoami-v2"
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            status = requests.get(url, headers=headers, timeout=HUB_S, allow_redirects=False).status_code
        except requests.RequestException as error:
            problem = f"the token could not be verified at {url}: {type(error).__name__}"
            yield rules.HUB_LOGIN.at(HERE, problem, f"curl -v {url}", severity=rules.WARNING)
            return
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            problem = f"the hub refused the token: {url} answered {status}, expected 200"
            yield rules.HUB_LOGIN.at(HERE, problem, MAKE_ONE)
        elif status != HTTPStatus.OK:
            problem = f"the token could not be verified: {url} answered {status}, expected 200"
            yield rules.HUB_LOGIN.at(HERE, problem, f"curl -v {url}", severity=rules.WARNING)


@dataclass(frozen=True)
class Fix:
    """A finding, and the command that fixes it."""

    finding: Finding
    repair: Repair


def fixes(findings: Iterable[Finding], nodes: Mapping[str, NodeConfig]) -> Iterator[Fix]:
    """Yield a fix for each finding that is fixable."""
    for finding in findings:
        kind = rules.KINDS.get(finding.code)
        if finding.fixable and isinstance(kind, rules.NodeRule) and kind.fix:
            yield Fix(finding, kind.fix(nodes[finding.node]))


def fix_all(connected: Connected, due: Sequence[Fix]) -> list[FixRow]:
    """Run the fixes one by one, and wait for what they start. Return a row with the output or the error of each."""
    rows = []
    for fix in due:
        member = connected.member(fix.finding.node)
        try:
            detail, succeeded = member.node.run(fix.repair.command).stdout.strip(), True
            if started := fix.repair.started:
                answered(member, started.container, partial(_ask, member, started))
        except NodeError as error:
            detail, succeeded = error.problem, False
        rows.append(
            FixRow(node=member.name, code=fix.finding.code, command=fix.repair.words, done=succeeded, detail=detail)
        )
    return rows


def _ask(member: Member, started: StartedAgent) -> None:
    """Raise NodeError or ValueError until the container is ready."""
    started.check(member.node.run(started.answers).stdout)
