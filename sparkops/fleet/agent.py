"""One container that serves sparkops itself: as it is wanted, or made so."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from sparkops.command import Command
from sparkops.commands import docker
from sparkops.errors import Busy, CommandFailed, ConnectionLost, Interrupted, NodeError, StartFailed
from sparkops.fleet.build import Order, build_on
from sparkops.fleet.connected import Member
from sparkops.fleet.guarded import Link
from sparkops.fleet.progress import Event, Tell
from sparkops.nodes.engine import Facts
from sparkops.plan.journal import Journal
from sparkops.plan.lock import Clock, lease_left

TRIES, PAUSE_S = 3, 1.0  # two operators may do the same at once; whoever comes second sees it done
PATIENCE_S, POLL_S = 30.0, 0.2
LOG_TAIL = 10
T = TypeVar("T")


@dataclass(frozen=True)
class Agent:
    """A container that serves sparkops itself. It is right if it runs and carries `labels`."""

    container: str
    order: Order
    labels: Mapping[str, str]
    run: Callable[[str], Command]
    stop: Command
    remove: Command
    costs: str
    """What it costs to replace it."""


def up(member: Member, agent: Agent, tell: Tell) -> bool:
    """Let the container be the wanted one. False if it was."""
    for _ in range(TRIES - 1):
        with suppress(CommandFailed):
            return _make_right(member, agent, tell)
        _pause(member, PAUSE_S)
    return _make_right(member, agent, tell)


def _make_right(member: Member, agent: Agent, tell: Tell) -> bool:
    there = member.engine.container(agent.container)
    if there is not None and agent.labels.items() <= there["Config"]["Labels"].items():
        if there["State"]["Running"] and not there["State"]["Restarting"]:
            return False
        tell(Event(member.name, f"starting {agent.container}"))
        member.node.run(docker.start(agent.container))
        return True
    image = build_on(member, agent.order, tell).image
    if there is not None:
        _refuse_while_held(member)
        tell(Event(member.name, f"replacing {agent.container} by another version: {agent.costs}"))
        member.node.run(agent.stop)
        member.node.run(agent.remove)
    else:
        tell(Event(member.name, f"starting {agent.container}"))
    member.node.run(agent.run(image))
    if there is not None and there["Image"] != image:
        _drop(member, there)
    return True


def _drop(member: Member, replaced: Facts) -> None:
    """The image of a replaced container, unless something else still needs it."""
    with suppress(CommandFailed):
        member.node.run(docker.remove_image(replaced["Image"]))


def _refuse_while_held(member: Member) -> None:
    """A deploy speaks through the guard and switches the gateway. A guard that cannot answer holds nobody up."""
    with suppress(ConnectionLost):
        link = Link(member.node)
        try:
            held = [said for service in link.ask("services", "") if (said := _holder(link, service))]
        finally:
            link.close()
        if held:
            step = "Wait until it has ended; the same version of sparkops needs no replacement."
            raise Busy(f"{member.name}: another version is at work there: {held[0]}", next_step=step)


def _holder(link: Link, service: str) -> str:
    """Who deploys the service just now; empty for nobody."""
    said = link.ask("read", service)
    journal = Journal.model_validate(said["journal"])
    left = lease_left(journal, Clock(said["now_s"], said["boot"]))
    return f"{journal.holder.owner} deploys {service} (for {left:.0f} s at least)" if journal.holder and left else ""


def answered(member: Member, container: str, ask: Callable[[], T]) -> T:
    """What a container says that may be just starting. Raises StartFailed with the end of its log."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except (ConnectionLost, Interrupted):
            raise
        except (NodeError, ValueError) as error:
            if time.monotonic() > end:
                log = member.engine.log(container, tail=LOG_TAIL)
                raise StartFailed(member.name, f"{container} does not answer: {error}\n{log}") from error
        _pause(member, POLL_S)


def _pause(member: Member, seconds: float) -> None:
    if member.node.cancel.wait(seconds):
        raise Interrupted("interrupted")
