"""The guard looks after its node's memory while a green comes up, whoever else watches it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sparkops.commands import docker
from sparkops.errors import CommandFailed, ConnectionLost
from sparkops.facts import host
from sparkops.guard.store import Store
from sparkops.nodes.node import Node
from sparkops.plan import relief


def read_available_gib() -> float:
    """What a new program could take of this machine's memory now, in GiB."""
    return host.available_gib(Path("/proc/meminfo").read_text())


@dataclass(frozen=True)
class Relief:
    """Kills a green that takes the last memory. Past the lock: who holds it may wait for what needs memory."""

    store: Store
    node: Node
    log: Callable[[str], None]
    available_gib: Callable[[], float] = read_available_gib
    low: Counter[str] = field(default_factory=Counter)
    """Looks in a row at which a container had to end."""

    def look(self) -> None:
        """Look once; every second is meant."""
        left_gib = self.available_gib()
        near = left_gib < relief.FLOOR_GIB
        journals = self.store.readable(self.store.services() if near else ())
        due = {name: each.service for each in journals if (name := relief.must_end(each, self.node.name, left_gib))}
        for name in [name for name in self.low if name not in due]:
            del self.low[name]
        for name, service in due.items():
            self.low[name] += 1
            if self.low[name] == relief.LOOKS:
                self._kill(service, name, left_gib)

    def _kill(self, service: str, container: str, left_gib: float) -> None:
        self.log(f"{service}: {left_gib:.1f} GiB of memory are left: {container} is killed before the node hangs")
        try:
            self.node.run(docker.kill(container))
        except (CommandFailed, ConnectionLost) as error:  # it has ended by itself, or the next looks try again
            self.log(f"{service}: {error}")
            del self.low[container]
