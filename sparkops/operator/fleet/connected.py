"""Connections to the nodes of a fleet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sparkops.config.inventory import Fleet
from sparkops.errors import SparkopsError
from sparkops.node.docker_api import Engine
from sparkops.node.member import Member
from sparkops.operator.fleet.connect import Connector
from sparkops.operator.fleet.parallel import all_or_raise, on_each

R = TypeVar("R")


@dataclass(frozen=True)
class Connected:
    """Connected nodes, and the errors of the unreachable ones."""

    fleet: Fleet
    members: dict[str, Member]
    unreachable: dict[str, SparkopsError] = field(default_factory=dict)
    cancel: threading.Event = field(default_factory=threading.Event)

    def member(self, name: str) -> Member:
        """Return a connected node. Raises the error of an unreachable one."""
        if name in self.unreachable:
            raise self.unreachable[name]
        return self.members[name]

    def only(self, names: Sequence[str]) -> Connected:
        """Return the connections to these nodes. Raises the error of an unreachable one."""
        return replace(self, members={name: self.member(name) for name in names})

    def on_each(self, work: Callable[[Member], R]) -> dict[str, R | SparkopsError]:
        """Do `work` on every connected node at once; an error is that node's result."""
        return on_each(self.members, lambda name: work(self.members[name]), self.cancel)

    def all(self, work: Callable[[Member], R]) -> dict[str, R]:
        """Do `work` on every connected node at once. Raises the error, or NodesFailed with all of them."""
        return all_or_raise(self.on_each(work))


@contextmanager
def connect(
    fleet: Fleet, names: Sequence[str] = (), *, patience_s: float = 20.0, required: bool = True
) -> Iterator[Connected]:
    """Connect to `names` (all nodes if empty) at once. Raises the error of an unreachable node if `required`."""
    cancel = threading.Event()
    connector = Connector(fleet, patience_s=patience_s, cancel=cancel)
    for name in names:
        fleet.node(name)
    outcomes = on_each(names or fleet.nodes, lambda name: _member(connector, fleet, name), cancel)
    members = {name: member for name, member in outcomes.items() if isinstance(member, Member)}
    failed = {name: error for name, error in outcomes.items() if isinstance(error, SparkopsError)}
    try:
        if required:
            all_or_raise(outcomes)
        yield Connected(fleet, members, failed, cancel)
    finally:
        for member in members.values():
            with suppress(OSError):  # a stream that has ended
                member.engine.close()
                member.node.close()


def _member(connector: Connector, fleet: Fleet, name: str) -> Member:
    node = connector.node(name)
    try:
        return Member(name, fleet.node(name), node, Engine(node))
    except SparkopsError:
        node.close()
        raise
