"""The plan of a move of gateway and leader while the old ones answer. Pure.

Each step is on a disk before the next one: the old leader resigns, so that no guard changes the journals; the
new one takes them in a higher term; the other guards join it; its gateway answers; the old gateway ends. The plan is
made of what the nodes report, so a move that was interrupted continues where it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sparkops.config.node import LOOPBACK
from sparkops.errors import Busy, PlanRefused
from sparkops.operator.deploy.agents import rebuild_plan
from sparkops.operator.deploy.agents.rebuild_plan import SILENT_S, GuardCopies, Rebuild, listed
from sparkops.serving import engine_spec
from sparkops.serving.service_state import free_step
from sparkops.swap import trouble
from sparkops.swap.intents import changing
from sparkops.swap.journal import Journal


@dataclass(frozen=True)
class Move:
    """Plan for `rebuild.node`: what it leads then, and what ends elsewhere."""

    rebuild: Rebuild
    leader: str = ""
    """The node whose guard leads now and is to resign; empty if it has resigned or leads already."""
    led: bool = False
    """Whether the guard of the node leads, and every other guard that replies has its messages."""
    closing: tuple[str, ...] = ()
    """Other nodes with a gateway."""
    drain_s: int = 0
    """Seconds for open requests of the old gateway to end: the longest `swap.drain_s` of a release."""
    keep_s: float = 0.0
    """Seconds for which the old gateway stays once the new one answers."""

    @property
    def node(self) -> str:
        return self.rebuild.node

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do."""
        return self.led and not self.closing

    @property
    def journals(self) -> tuple[Journal, ...]:
        """The journals of services that an operator has not given up."""
        return tuple(listed((*self.rebuild.journals, *self.rebuild.kept)))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.ended:
            yield f"gateway and leader are on {self.node}"
            return
        yield from str(self.rebuild).splitlines()
        if not self.led:
            yield f"  {self.node}: start the gateway, with the keys and the certificate of the inventory"
        if self.leader:
            yield f"  {self.leader}: its guard stops leading"
        if not self.led:
            yield f"  {self.node}: its guard takes the lead; all others get a new key and follow it"
        for name in self.closing:
            after = f"{self.keep_s:g} s after that on {self.node} answers"
            yield f"  {name}: remove the gateway {after}; open requests have {self.drain_s} s"


def plan(node: str, copies_by_node: Mapping[str, GuardCopies], gateways: Collection[str], keep_s: float = 0.0) -> Move:
    """Return the plan that moves gateway and leader to `node`.

    `gateways`: the nodes that have a gateway; `keep_s`: seconds for which they stay once the new one answers.

    Raises PlanRefused if the present leader does not answer, or a release that the new gateway cannot reach serves;
    Busy while a service changes.
    """
    newest = rebuild_plan.newest_of(copies_by_node)
    if not newest:
        step = f"Set `gateway.node: {node}` in the inventory; the next deploy starts the gateway there."
        raise PlanRefused("no reachable guard keeps a journal: no gateway to move", next_step=step)
    leaders = sorted({journal.leader for journal in newest.values()} - {node})
    if lost := [name for name in leaders if name not in copies_by_node]:
        step = f"sparkops doctor; if it is lost: {trouble.REBUILD} {node} --without {lost[0]}"
        raise PlanRefused(f"{lost[0]} leads and its guard does not answer: it cannot hand over", next_step=step)
    rebuild = rebuild_plan.led_by(node, copies_by_node)
    led = not rebuild.journals and all(_is_led(node, name, copies) for name, copies in copies_by_node.items())
    if not led:
        _require_rest(newest.values())
        _require_reached(node, newest.values())
    releases = (release for journal in newest.values() for release in journal.deployments)
    return Move(
        rebuild=rebuild,
        leader=next((name for name in leaders if copies_by_node[name].leader == name), ""),
        led=led,
        closing=tuple(sorted(set(gateways) - {node})),
        drain_s=max((int(release.limits.drain_s) for release in releases), default=0),
        keep_s=keep_s,
    )


def _is_led(node: str, name: str, copies: GuardCopies) -> bool:
    """Return whether a guard is the leader, or gets its messages. One that a leader resigned for has none yet."""
    heard = name == node or (copies.heard_ago_s is not None and copies.heard_ago_s < SILENT_S)
    return copies.leader == node and heard


def _require_rest(journals: Iterable[Journal]) -> None:
    """Raise Busy while a service changes."""
    for journal in journals:
        if why := changing(journal):
            raise Busy(why, next_step=free_step(journal.service, why))


def _require_reached(node: str, journals: Iterable[Journal]) -> None:
    """Raise PlanRefused for an engine beside the old gateway: it listens on loopback only."""
    for journal in journals:
        for release in journal.deployments:
            for head in release.heads:
                if head.node != node and engine_spec.of(head).address == LOOPBACK:
                    problem = (
                        f"{journal.service}: {release.release} runs beside the gateway on {head.node} and listens on "
                        f"{LOOPBACK} only: a gateway on {node} cannot reach it"
                    )
                    step = f"Move it first: sparkops node drain {head.node} --allow-downtime, then retry."
                    raise PlanRefused(problem, next_step=step)
