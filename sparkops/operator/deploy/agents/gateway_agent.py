"""Compare the gateway with the inventory, and bring it up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkops.config.inventory import Fleet, Gateway
from sparkops.gateway import commands
from sparkops.gateway.facts import GatewayFacts
from sparkops.gateway.gateway_version import gateway_facts, gateway_version, require_loaded
from sparkops.node.agents.container import answered, discard
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.operator.build.gateway.files import Secrets, load_program, load_secrets, load_templates
from sparkops.operator.build.gateway.image import DISK_GIB, IMAGE, NAME, Service, files, gateway_context, hashed
from sparkops.operator.build.images import gated
from sparkops.operator.build.images.build import BuildOrder, Gate
from sparkops.operator.deploy.agents.agent import Agent
from sparkops.operator.deploy.agents.differences import (
    Change,
    GatewayContents,
    Kind,
    differing,
    of_gateway,
    require_consent,
    require_own_names,
    require_own_ports,
)
from sparkops.operator.deploy.agents.replacement import finish, up


def _settings(settings: Gateway, monitoring: str) -> str:
    """Return the settings of the inventory that a file of the gateway has, as text."""
    elsewhere = ("node", "address", "api_keys", "tls_certificate")
    own = [f"{key} {value}" for key, value in settings if key not in elsewhere]
    return ", ".join([*own, f"monitoring {'on' if monitoring else 'off'}"])


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
            name: Service(name, shared if shared and known.path else known.port, known.aliases, known.sticky)
            for name, known in facts.services.items()
        }
        services = {**known, **{service.name: service for service in self.services}}
        require_own_names(services.values())
        require_own_ports(services.values(), shared)
        hashes = [hashed([key]).strip() for key in self.secrets.api_keys]
        keys = dict(zip(self.settings.api_keys, hashes, strict=True))
        configuration = files(services.values(), self.settings, self.secrets, self.templates)
        return GatewayContents(services, configuration, keys, _settings(self.settings, self.secrets.monitoring))


def load(fleet: Fleet, settings: Gateway, services: Sequence[Service]) -> GatewaySpec:
    templates, secrets = load_templates(), load_secrets(fleet)
    parent = fleet.build.parent(IMAGE)
    context = gateway_context(templates, load_program(), parent, fleet.build.agent_packages)
    tried = files(services, settings, secrets, templates)
    gate = Gate(lambda image: commands.check_image(image, tried))
    finished = fleet.build.finished(NAME)
    order = BuildOrder(NAME, context, DISK_GIB, gate, finished=finished, noted_in=gated.of(fleet))
    return GatewaySpec(order, tuple(services), settings, secrets, templates)


def ensure(member: Member, spec: GatewaySpec, guard: BuildOrder, report: OnEvent, *, apply_gateway: bool) -> bool:
    """Bring the gateway of a node up to date. False if it was. Raises PlanRefused without consent.

    `guard` is the image with the program that replaces another version.
    """
    replaced = up(member, agent(member.name, spec, guard), report)
    return _configure(member, spec, report, apply_gateway=apply_gateway) or replaced


def agent(node: str, spec: GatewaySpec, guard: BuildOrder) -> Agent:
    return Agent(
        version=gateway_version(node, spec.order.context.digest, str(spec.settings.memory_mib)),
        order=spec.order,
        program=guard,
        costs=f"requests are answered, and those that are open have {commands.STOP_S} s to end",
    )


def remove(member: Member, agent: Agent, report: OnEvent, drain_s: int = 0) -> bool:
    """Remove the gateway from a node that is no longer its node, with its volume: hashes of keys, private key, routes.

    Its ports close at once; open requests have `drain_s` seconds, or those of a replacement, to end.
    """
    finish(member, agent, report)
    open_s = max(drain_s, agent.version.stop_s)
    text = f"removing {agent.container}: the gateway runs on another node; open requests have {open_s} s"
    report(Event(member.name, text))
    for name in (agent.version.aside, agent.container):
        discard(member, name, open_s)
    member.node.run(commands.REMOVE_VOLUME)
    return True


def _configure(member: Member, spec: GatewaySpec, report: OnEvent, *, apply_gateway: bool) -> bool:
    """Give the gateway the files of its services. False if it runs with them already."""
    facts = answered(member, commands.CONTAINER, lambda: gateway_facts(member.node))
    contents = spec.contents(facts)
    changes = tuple(of_gateway(member.name, facts, contents))
    require_consent(changes, given=apply_gateway)
    if not changes:
        return False
    if any(change.kind is not Kind.START for change in changes):
        report(Event(member.name, f"configuring services: {', '.join(sorted(contents.services)) or 'none yet'}"))
    member.node.run(commands.configure(differing(facts, contents)))
    answered(member, commands.CONTAINER, lambda: require_loaded(member.node))
    return True


def differences(member: Member, spec: GatewaySpec) -> Iterator[Change]:
    facts = answered(member, commands.CONTAINER, lambda: gateway_facts(member.node))
    return of_gateway(member.name, facts, spec.contents(facts))
