"""The plan of a rebuild of gateway and leader on another node, from what reachable guards keep. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkops.config.serve import Serve
from sparkops.errors import PlanRefused, UsageError
from sparkops.operator.build.gateway.image import Service
from sparkops.serving import engine_spec
from sparkops.swap import wire
from sparkops.swap.journal import Journal
from sparkops.swap.rebuild import rebuilt

SILENT_S = 10.0
"""A leader sends a message every second; after so long without one it is lost."""


@dataclass(frozen=True)
class GuardCopies:
    """Journals on one guard: of services that it leads, and copies of its leader's."""

    leader: str
    """The node whose orders it follows, its own if it leads; empty before it has a fleet."""
    journals: tuple[Journal, ...] = ()
    copies: tuple[Journal, ...] = ()
    term: int = 0
    """The highest term of a rebuild that it took or joined."""
    heard_ago_s: float | None = None
    """Seconds since its leader's last message; None without one since its process started."""
    problems: tuple[str, ...] = ()
    """Files that it cannot read."""

    @property
    def known(self) -> tuple[Journal, ...]:
        return (*self.journals, *self.copies)


@dataclass(frozen=True)
class Rebuild:
    """Plan for `node`: the journals that it receives (`journals`), and those that it leads already (`kept`).

    The journals of forgotten services move too, so that no older copy brings one back; they are not listed.
    """

    node: str
    journals: tuple[Journal, ...]
    kept: tuple[Journal, ...] = ()
    lost: frozenset[str] = frozenset()
    problems: tuple[str, ...] = field(default=())
    following: frozenset[str] = frozenset()
    """Nodes whose guards take `node` for the leader already."""

    @property
    def services(self) -> tuple[Service, ...]:
        serves = ((journal.service, _serve(journal)) for journal in (*self.journals, *self.kept))
        return tuple(Service(name, serve.port, tuple(serve.aliases), serve.sticky) for name, serve in serves if serve)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"gateway and leader on {self.node}" + (f", without {', '.join(sorted(self.lost))}" if self.lost else "")
        for journal in listed(self.journals):
            serving = f"{journal.active.release} serves" if journal.active else "nothing serves"
            yield f"  {journal.service}: {serving}; journal term {journal.term}, revision {journal.revision}"
            given_up = sorted(rank.container for rank in journal.stopped if rank.node in self.lost)
            if given_up:
                yield f"    given up: {', '.join(given_up)}"
        for journal in listed(self.kept):
            yield f"  {journal.service}: {self.node} leads it already; term {journal.term}"
        yield from (f"  unreadable: {problem}" for problem in self.problems)


def listed(journals: Iterable[Journal]) -> Iterator[Journal]:
    """Yield the journals of services that an operator has not given up."""
    return (journal for journal in journals if not journal.forgotten)


def read(reply: Mapping[str, Any]) -> GuardCopies:
    """Parse a guard's reply to `copies`. Raises an error for one of another form."""
    return GuardCopies(
        leader=reply["leader"],
        journals=tuple(wire.load_value(Journal, parsed) for parsed in reply["journals"]),
        copies=tuple(wire.load_value(Journal, parsed) for parsed in reply["copies"]),
        term=reply["term"],
        heard_ago_s=reply["heard_ago_s"],
        problems=tuple(reply["problems"]),
    )


def plan(node: str, copies_by_node: Mapping[str, GuardCopies], without: frozenset[str]) -> Rebuild:
    """Return the plan that makes `node` the leader. `copies_by_node`: of reachable guards; `without`: lost nodes.

    Raises PlanRefused while the old leader answers, or if a guard that may have a newer journal is missing.
    """
    if answering := sorted(without & set(copies_by_node)):
        raise UsageError(f"--without {answering[0]}: its guard answers", next_step="Drop --without for this node.")
    newest = newest_of(copies_by_node)
    _require_lost_leader(node, copies_by_node, newest)
    _require_all(node, copies_by_node, newest, without)
    return led_by(node, copies_by_node, without)


def newest_of(copies_by_node: Mapping[str, GuardCopies]) -> dict[str, Journal]:
    """Return the newest journal of each service."""
    newest: dict[str, Journal] = {}
    for journal in (journal for copies in copies_by_node.values() for journal in copies.known):
        present = newest.get(journal.service)
        if present is None or journal.position > present.position:
            newest[journal.service] = journal
    return newest


def led_by(node: str, copies_by_node: Mapping[str, GuardCopies], without: frozenset[str] = frozenset()) -> Rebuild:
    """Return the plan that makes `node` the leader of the newest journals, whatever else leads."""
    newest = newest_of(copies_by_node)
    own_copies = copies_by_node.get(node, GuardCopies(""))
    own_positions = {(journal.service, journal.position) for journal in own_copies.journals}
    kept = [journal for journal in newest.values() if (journal.service, journal.position) in own_positions]
    copies = {service: journal for service, journal in newest.items() if journal not in kept}
    above = max(guard.term for guard in copies_by_node.values())
    return Rebuild(
        node=node,
        journals=tuple(rebuilt([copies[service]], node, without, above) for service in sorted(copies)),
        kept=tuple(kept),
        lost=without,
        problems=tuple(f"{name}: {problem}" for name, copies in copies_by_node.items() for problem in copies.problems),
        following=frozenset(name for name, copies in copies_by_node.items() if copies.leader == node),
    )


def _require_lost_leader(node: str, copies_by_node: Mapping[str, GuardCopies], newest: Mapping[str, Journal]) -> None:
    """Raise PlanRefused while a guard receives messages of the leader, even if this client cannot reach it."""
    leaders = {journal.leader for journal in newest.values()} - {node}
    for name, copies in copies_by_node.items():
        if name in leaders and copies.leader == name:
            step = f"The gateway is not lost. Set `gateway.node: {name}` in the inventory: sparkops status"
            raise PlanRefused(f"{name}: the leader of this fleet answers", next_step=step)
        if copies.leader in leaders and copies.heard_ago_s is not None and copies.heard_ago_s < SILENT_S:
            problem = (
                f"{name}: the leader {copies.leader} sent a message {copies.heard_ago_s:.0f} s ago: it is not lost"
            )
            raise PlanRefused(problem, next_step="Restore the connection to it, or stop the node; then retry.")


def _require_all(
    node: str, copies_by_node: Mapping[str, GuardCopies], newest: Mapping[str, Journal], without: frozenset[str]
) -> None:
    """Raise PlanRefused unless every guard that may have a newer journal answers or is given up."""
    if not newest:
        step = "sparkops deploy RECIPE --blue-green starts a gateway for the first time."
        raise PlanRefused("no reachable guard keeps a journal: nothing to rebuild from", next_step=step)
    holders = {name for journal in newest.values() for name in (journal.leader, *journal.peers)}
    given_up = without.union(*(journal.without for journal in newest.values()))
    if missing := sorted(holders - set(copies_by_node) - given_up - {node}):
        options = " ".join(f"--without {name}" for name in [*sorted(without), *missing])
        problem = f"guards that may keep a newer journal do not answer: {', '.join(missing)}"
        step = f"Restart them, or give them up with their engines: sparkops gateway rebuild {node} {options}"
        raise PlanRefused(problem, next_step=step)


def _serve(journal: Journal) -> Serve | None:
    """Return port and names of a service on the gateway; None where the journal has no release of it."""
    releases = (*journal.deployments, *((journal.previous,) if journal.previous else ()))
    return next((engine_spec.of(rank).parsed.serve for item in releases for rank in item.heads), None)
