"""Differences of gateway and guards from the inventory, and those that need consent. Pure."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sparkops import __version__
from sparkops.errors import PlanRefused
from sparkops.gateway.facts import GatewayFacts
from sparkops.names import INPUTS, LABEL
from sparkops.operator.build.gateway.image import Service

VERSION = f"{LABEL}version"
SERVICE_FILE = re.compile(r"services/(.+)\.cfg")
PEM = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")


class Kind(StrEnum):
    """Effect of a change on an agent."""

    INSTALL = "install"
    START = "start"
    """The container exists and does not work."""
    SERVICE = "add a service"
    CONFIGURE = "configure"
    REPLACE = "replace"
    REMOVE = "remove"
    """The inventory names another node for the gateway."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference of one agent: `guard` or `gateway`."""

    node: str
    agent: str
    kind: Kind
    text: str

    @property
    def needs_consent(self) -> bool:
        """Whether clients may notice it: another configuration, version or node of the running gateway."""
        return self.agent == "gateway" and self.needs_lease

    @property
    def needs_lease(self) -> bool:
        """Whether changes of services are blocked meanwhile."""
        return self.kind in (Kind.CONFIGURE, Kind.REPLACE, Kind.REMOVE)

    def __str__(self) -> str:
        return f"{self.node}: {self.kind} {self.agent}: {self.text}"


@dataclass(frozen=True, slots=True)
class AgentContainer:
    labels: Mapping[str, str]
    running: bool


@dataclass(frozen=True)
class GatewayContents:
    """Required contents of the gateway. `keys`: SHA-256 of each key by file name, in HAProxy's notation."""

    services: Mapping[str, Service]
    files: Mapping[str, str | None]
    keys: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""
    """What the inventory says of the gateway, as text."""


def of_container(
    node: str, agent: str, container: AgentContainer | None, labels: Mapping[str, str]
) -> Iterator[Change]:
    """Yield the differences of an agent's container from a running one with these labels.

    Raises PlanRefused for one of a newer version of sparkops.
    """
    expected = labels[INPUTS]
    if container is None:
        yield Change(node, agent, Kind.INSTALL, f"image {expected[:12]}")
    elif (inputs := container.labels.get(INPUTS, "")) != expected:
        require_no_downgrade(node, agent, container.labels)
        yield Change(node, agent, Kind.REPLACE, f"image {inputs[:12] or 'unknown'}, expected {expected[:12]}")
    elif not labels.items() <= container.labels.items():
        yield Change(node, agent, Kind.REPLACE, f"labels {dict(container.labels)}, expected {dict(labels)}")
    elif not container.running:
        yield Change(node, agent, Kind.START, "its container is not running")


def require_no_downgrade(node: str, agent: str, labels: Mapping[str, str], version: str = __version__) -> None:
    """Raise PlanRefused where an agent, by its labels, is of a newer version of sparkops than the other one."""
    running = labels.get(VERSION, "")
    if _numbers(running) > _numbers(version):
        problem = f"{node}: its {agent} is of sparkops {running}: version {version} would replace it with an older one"
        raise PlanRefused(problem, next_step=f"Update sparkops on this machine to {running} or newer.")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def of_gateway(node: str, facts: GatewayFacts, contents: GatewayContents) -> Iterator[Change]:
    """Yield the differences of a running gateway's files."""
    if not facts.files:
        yield Change(node, "gateway", Kind.INSTALL, "its first configuration")
        return
    for name in sorted(differing(facts, contents)):
        yield _of_file(node, name, facts, contents)
    if facts.problem or not facts.loaded:
        yield Change(node, "gateway", Kind.START, facts.problem or "HAProxy does not run with its files")


def differing(facts: GatewayFacts, contents: GatewayContents) -> dict[str, str | None]:
    """Return the files that differ, with their expected texts; None for one that is not expected.

    Nothing else is sent: the other files may belong to a service that has been removed since they were read.
    """
    texts = {name: contents.files.get(name) for name in (*facts.files, *contents.files)}
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items() if text is not None}
    return {name: text for name, text in texts.items() if facts.files.get(name) != digests.get(name)}


def _of_file(node: str, name: str, facts: GatewayFacts, contents: GatewayContents) -> Change:
    service = SERVICE_FILE.fullmatch(name)
    if service and name not in facts.files:
        return Change(node, "gateway", Kind.SERVICE, f"{service[1]} on port {contents.services[service[1]].port}")
    if service:
        text = _of_service(service[1], facts, contents)
    elif name == "keys":
        text = _of_keys(facts.keys, contents.keys)
    elif name == "tls.pem":
        expected = fingerprint(contents.files.get(name) or "")
        text = f"certificate {facts.certificate or 'none'}, expected {expected or 'none'}"
    else:
        text = f"{name} is not that of the inventory: {contents.settings}"
    return Change(node, "gateway", Kind.CONFIGURE, text)


def _of_service(service: str, facts: GatewayFacts, contents: GatewayContents) -> str:
    running, expected = facts.services[service], contents.services[service]
    if running.port != expected.port:
        return f"{service} on port {running.port}, expected {expected.port}"
    if running.aliases != expected.aliases:
        names = (", ".join(aliases) or "none" for aliases in (running.aliases, expected.aliases))
        return f"aliases of {service}: {', expected '.join(names)}"
    if running.sticky != expected.sticky:
        return f"serve.sticky of {service}: {str(running.sticky).lower()}, expected {str(expected.sticky).lower()}"
    return f"access to {service} is not that of the inventory: {contents.settings}"


def _of_keys(running: Iterable[str], expected: Mapping[str, str]) -> str:
    added = sorted(name for name, key in expected.items() if key not in running)
    unnamed = len(set(running) - set(expected.values()))
    parts = [f"{name} is added" for name in added]
    parts += [f"{unnamed} that the inventory does not name" if unnamed > 1 else "one that the inventory does not name"]
    return f"API keys: {', '.join(parts if unnamed else parts[:-1])}"


def fingerprint(pem: str) -> str:
    """Return the SHA-256 of the first certificate of a PEM text, as `openssl x509 -fingerprint` has it; empty without.

    Raises ValueError for a certificate that cannot be decoded.
    """
    match = PEM.search(pem)
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(match[0])).hexdigest() if match else ""
    return ":".join(digest[at : at + 2].upper() for at in range(0, len(digest), 2))


def require_own_names(services: Iterable[Service]) -> None:
    """Raise PlanRefused if two services share a name: a request names one service."""
    owner: dict[str, str] = {}
    for service in services:
        for name in (service.name, *service.aliases):
            if other := owner.get(name):
                raise PlanRefused(
                    f"{service.name}: the name {name} belongs to {other} already: a request names one service",
                    next_step=f"Remove {name} from serve.aliases of {service.name} or {other}.",
                )
            owner[name] = service.name


def require_own_ports(services: Iterable[Service], shared: int | None) -> None:
    """Raise PlanRefused if two services have the same port and it is not `shared`, the port of the one address."""
    owner: dict[int, str] = {}
    for service in services:
        other = owner.setdefault(service.port, service.name)
        if other != service.name and service.port != shared:
            alternative = f", or to {shared}, the port of all services" if shared else ""
            raise PlanRefused(
                f"{service.name}: port {service.port} of the gateway belongs to {other} already",
                next_step=f"Set serve.port of {service.name} to another port{alternative}.",
            )


def require_consent(changes: Iterable[Change], *, given: bool) -> None:
    """Raise PlanRefused for changes of the running gateway without consent."""
    due = [str(change) for change in changes if change.needs_consent]
    if due and not given:
        problem = "\n".join(["the running gateway differs from the inventory:", *(f"  {text}" for text in due)])
        raise PlanRefused(problem, next_step="Deploy with --apply-gateway to change it, or correct the inventory.")
