"""What runs beside the services: a guard on every node, and the gateway on its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sparkops.commands import gateway as gateway_commands
from sparkops.commands import guard as guard_commands
from sparkops.config import assets
from sparkops.config import gateway as gateway_door
from sparkops.config.gateway import Secrets
from sparkops.config.inventory import Fleet, Gateway
from sparkops.errors import CommandFailed, NodeError
from sparkops.facts import gateway as gateway_facts
from sparkops.facts.gateway import GatewayFacts
from sparkops.fleet.agent import Agent, answered, up
from sparkops.fleet.build import Gate, Order
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.parallel import all_or_raise, on_each
from sparkops.fleet.progress import Event, Tell
from sparkops.release import LABEL
from sparkops.render import gateway as gateway_render
from sparkops.render import guard as guard_render
from sparkops.render.gateway import Files, Service

KINDS = GUARD, GATEWAY = guard_render.NAME, gateway_render.NAME


@dataclass(frozen=True)
class Front:
    """The gateway and the services that it must know; others that it knows already stay."""

    order: Order
    services: tuple[Service, ...]
    settings: Gateway
    secrets: Secrets
    templates: Mapping[str, str]

    def files(self, services: Sequence[Service]) -> Files:
        """All that the gateway is given."""
        return gateway_render.files(services, self.settings, self.secrets, self.templates)


@dataclass(frozen=True)
class Wanted:
    """What must run. Without a gateway in the inventory there is none."""

    guard: Order
    front: Front | None


def load(fleet: Fleet, services: Sequence[Service] = ()) -> Wanted:
    """What must run for `services`, read at the door. Raises ConfigError."""
    guard = guard_order(assets.load_templates(), assets.load_package(), fleet.build.parent(guard_render.IMAGE))
    return Wanted(guard, _front(fleet, fleet.gateway, services) if fleet.gateway else None)


def guard_order(templates: Mapping[str, str], package: Mapping[str, bytes], parent: str) -> Order:
    """The guard's image from our own source."""
    made = guard_render.guard_context(templates, package, parent)
    return Order(guard_render.NAME, made, guard_render.DISK_GIB, Gate(guard_commands.ask_image))


def _front(fleet: Fleet, settings: Gateway, services: Sequence[Service]) -> Front:
    templates, secrets = gateway_door.load_templates(), gateway_door.load_secrets(fleet)
    parent = fleet.build.parent(gateway_render.IMAGE)
    made = gateway_render.gateway_context(templates, gateway_door.load_program(), parent)
    tried = gateway_render.files(services, settings, secrets, templates)
    gate = Gate(lambda image: gateway_commands.ask_image(image, tried))
    order = Order(gateway_render.NAME, made, gateway_render.DISK_GIB, gate)
    return Front(order, tuple(services), settings, secrets, templates)


def ensure(connected: Connected, wanted: Wanted, tell: Tell) -> dict[str, tuple[str, ...]]:
    """Let a guard run on every connected node, and the gateway with its services on its own, if that is one of them.

    Returns what was changed on each node; what is right is only looked at. Raises Busy where a container would
    have to be replaced that a deploy needs just now, and the errors of a build.
    """
    jobs = {
        f"{name} {kind}": job
        for name, member in connected.members.items()
        for kind, job in _jobs(member, wanted, tell).items()
    }
    changed = all_or_raise(on_each(jobs, lambda job: jobs[job](), connected.cancel))
    return {name: tuple(kind for kind in KINDS if changed.get(f"{name} {kind}")) for name in connected.members}


def _jobs(member: Member, wanted: Wanted, tell: Tell) -> dict[str, Callable[[], bool]]:
    """What may have to be done on a node, all at once. Each says whether it changed anything."""
    front = wanted.front
    jobs: dict[str, Callable[[], bool]] = {GUARD: lambda: _ensure_guard(member, wanted.guard, tell)}
    if front and front.settings.node == member.name:
        jobs[GATEWAY] = lambda: _ensure_gateway(member, front, tell)
    return jobs


def _ensure_guard(member: Member, order: Order, tell: Tell) -> bool:
    if not up(member, _guard(member, order), tell):
        with suppress(CommandFailed):
            member.node.run(guard_commands.REACHES)
            return False
        tell(Event(member.name, "restarting the guard: it does not reach Docker any more"))
        member.node.run(guard_commands.restart())
    answered(member, guard_commands.CONTAINER, lambda: member.node.run(guard_commands.READY))
    return True


def _ensure_gateway(member: Member, front: Front, tell: Tell) -> bool:
    replaced = up(member, _gateway(front.order), tell)
    return _configure(member, front, tell) or replaced


def _guard(member: Member, order: Order) -> Agent:
    inputs = order.context.digest
    return Agent(
        container=guard_commands.CONTAINER,
        order=order,
        labels={f"{LABEL}inputs": inputs, guard_commands.NODE_LABEL: member.name},
        run=lambda image: guard_commands.run(image, inputs, member.name),
        stop=guard_commands.stop(),
        remove=guard_commands.remove(),
        costs="services go on",
    )


def _gateway(order: Order) -> Agent:
    inputs = order.context.digest
    return Agent(
        container=gateway_commands.CONTAINER,
        order=order,
        labels={f"{LABEL}inputs": inputs},
        run=lambda image: gateway_commands.run(image, inputs),
        stop=gateway_commands.stop(),
        remove=gateway_commands.remove(),
        costs=f"nobody can connect for a moment, and streams have {gateway_commands.STOP_S} s to end",
    )


def _configure(member: Member, front: Front, tell: Tell) -> bool:
    """Let the gateway have the files that belong to its services. False if it had them, and runs with them."""
    facts = answered(member, gateway_commands.CONTAINER, lambda: _facts(member))
    known = {name: Service(name, each.port) for name, each in facts.services.items()}
    services = {**known, **{each.name: each for each in front.services}}
    files = front.files(tuple(services.values()))
    same = _digests(files) == dict(facts.files)
    if same and facts.loaded and not facts.problem:
        return False
    if not same:
        tell(Event(member.name, f"the gateway is given its services: {', '.join(sorted(services)) or 'none yet'}"))
    member.node.run(gateway_commands.configure(files))
    answered(member, gateway_commands.CONTAINER, lambda: _running(member))
    return True


def _digests(files: Files) -> dict[str, str]:
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items() if text is not None}


def _facts(member: Member) -> GatewayFacts:
    return gateway_facts.parse(member.node.run(gateway_commands.SHOW).stdout)


def _running(member: Member) -> GatewayFacts:
    facts = _facts(member)
    if facts.problem or not facts.loaded:
        raise NodeError(member.name, facts.problem or "HAProxy does not run with its files")
    return facts
