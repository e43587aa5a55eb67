"""Compare the gateway with the inventory, and bring it up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkops.agents.agent import Agent, up
from sparkops.agents.container import answered, discard
from sparkops.agents.differences import (
    Change,
    GatewayContents,
    Kind,
    of_gateway,
    require_consent,
    require_own_names,
    require_own_ports,
)
from sparkops.config.inventory import Fleet, Gateway
from sparkops.errors import NodeError
from sparkops.gateway import commands
from sparkops.gateway.facts import GatewayFacts, parse_gateway
from sparkops.gateway.files import Secrets, load_program, load_secrets, load_templates
from sparkops.gateway.image import DISK_GIB, IMAGE, NAME, Service, files, gateway_context, hashed
from sparkops.images.build import BuildOrder, Gate, build_on
from sparkops.nodes.connected import Member
from sparkops.nodes.progress import Event, OnEvent


def _limits(settings: Gateway) -> str:
    """Return the limits of the gateway's section as text."""
    elsewhere = ("node", "address", "api_keys", "tls_certificate")
    return ", ".join(f"{key} {value}" for key, value in settings if key not in elsewhere)


@dataclass(frozen=True)
class GatewaySpec:
    """The gateway and its required services. Other services that it has stay."""

    order: BuildOrder
    services: tuple[Service, ...]
    settings: Gateway
    secrets: Secrets
    templates: Mapping[str, str]

    def contents(self, facts: GatewayFacts) -> GatewayContents:
        """Return the required contents, with the gateway's present services.

        Raises PlanRefused for a shared name or port.
        """
        shared = self.settings.port  # a service on the running one has a path, and moves with it
        known = {
            name: Service(name, shared if shared and known.path else known.port, known.aliases)
            for name, known in facts.services.items()
        }
        services = {**known, **{service.name: service for service in self.services}}
        require_own_names(services.values())
        require_own_ports(services.values(), shared)
        hashes = [hashed([key]).strip() for key in self.secrets.api_keys]
        keys = dict(zip(self.settings.api_keys, hashes, strict=True))
        configuration = files(services.values(), self.settings, self.secrets, self.templates)
        return GatewayContents(services, configuration, keys, _limits(self.settings))


def load(fleet: Fleet, settings: Gateway, services: Sequence[Service]) -> GatewaySpec:
    templates, secrets = load_templates(), load_secrets(fleet)
    parent = fleet.build.parent(IMAGE)
    context = gateway_context(templates, load_program(), parent)
    tried = files(services, settings, secrets, templates)
    gate = Gate(lambda image: commands.check_image(image, tried))
    order = BuildOrder(NAME, context, DISK_GIB, gate)
    return GatewaySpec(order, tuple(services), settings, secrets, templates)


def ensure(member: Member, spec: GatewaySpec, report: OnEvent, *, apply_gateway: bool) -> bool:
    """Bring the gateway of a node up to date. False if it was. Raises PlanRefused without consent."""
    replaced = up(member, agent(spec), report)
    return _configure(member, spec, report, apply_gateway=apply_gateway) or replaced


def agent(spec: GatewaySpec) -> Agent:
    order, memory_mib = spec.order, spec.settings.memory_mib
    inputs = order.context.digest
    return Agent(
        container=commands.CONTAINER,
        order=order,
        labels=commands.labels(inputs, memory_mib),
        run=lambda image: commands.run(image, inputs, memory_mib),
        install=_install_gateway,
        replace=_replace_gateway,
        costs=f"new connections fail for a moment, and streams have {commands.STOP_S} s to end",
    )


def _install_gateway(member: Member, agent: Agent, report: OnEvent) -> None:
    image = build_on(member, agent.order, report).image
    report(Event(member.name, f"starting {agent.container}"))
    member.node.run(agent.run(image))


def _replace_gateway(member: Member, agent: Agent, report: OnEvent) -> None:
    image = build_on(member, agent.order, report).image
    report(Event(member.name, f"replacing {agent.container} with another version: {agent.costs}"))
    member.node.run(commands.stop())
    discard(member, agent.container)
    member.node.run(agent.run(image))


def remove(member: Member, report: OnEvent) -> bool:
    """Remove the gateway from a node that is no longer its node. Its volume stays."""
    report(Event(member.name, f"removing {commands.CONTAINER}: the gateway runs on another node"))
    member.node.run(commands.stop())
    discard(member, commands.CONTAINER)
    return True


def _configure(member: Member, spec: GatewaySpec, report: OnEvent, *, apply_gateway: bool) -> bool:
    """Give the gateway the files of its services. False if it runs with them already."""
    facts = answered(member, commands.CONTAINER, lambda: _facts(member))
    contents = spec.contents(facts)
    differing = tuple(of_gateway(member.name, facts, contents))
    require_consent(differing, given=apply_gateway)
    if not differing:
        return False
    if any(change.kind is not Kind.START for change in differing):
        report(Event(member.name, f"configuring services: {', '.join(sorted(contents.services)) or 'none yet'}"))
    member.node.run(commands.configure(contents.files))
    answered(member, commands.CONTAINER, lambda: _running(member))
    return True


def differences(member: Member, spec: GatewaySpec) -> Iterator[Change]:
    facts = answered(member, commands.CONTAINER, lambda: _facts(member))
    return of_gateway(member.name, facts, spec.contents(facts))


def _facts(member: Member) -> GatewayFacts:
    return parse_gateway(member.node.run(commands.SHOW).stdout)


def _running(member: Member) -> GatewayFacts:
    facts = _facts(member)
    if facts.problem or not facts.loaded:
        raise NodeError(member.name, facts.problem or "HAProxy does not run with its files")
    return facts
