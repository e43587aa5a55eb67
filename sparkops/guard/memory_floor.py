"""The last memory of a node: below the floor, an engine that loads or is not promoted ends before the node hangs.

It needs neither the leader, nor a lock, nor an answer of Docker before the kill: a thread of its own runs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sparkops.docker import commands
from sparkops.errors import CommandFailed, ConnectionLost
from sparkops.guard.follower import Follower
from sparkops.guard_client import engine_spec
from sparkops.memory.relief import FLOOR_GIB, LOOKS, floor_gib
from sparkops.nodes import host
from sparkops.nodes.node import Node
from sparkops.swap.model import RankSpec


def read_available_gib() -> float:
    """Return the memory that a new program could take on this machine now, in GiB. Raises OSError, ValueError."""
    return host.available_gib(Path("/proc/meminfo").read_text())


@dataclass
class MemoryFloor:
    """Memory relief of one node. `log` takes one line."""

    follower: Follower
    node: Node
    log: Callable[[str], None]
    available_gib: Callable[[], float] = read_available_gib
    low: Counter[str] = field(default_factory=Counter)
    """Looks in a row at which a container left too little."""

    def look(self) -> None:
        """Look once, a second after the last time, and kill at most one engine."""
        free_gib = self.available_gib()
        expendable = self.follower.expendable() if free_gib < FLOOR_GIB else []
        due = [(service, rank) for service, rank in expendable if free_gib < _floor_gib(rank)]
        self.low = Counter({rank.container: self.low[rank.container] + 1 for _, rank in due})
        for service, rank in due:
            if self.low[rank.container] >= LOOKS:
                self._kill(service, rank, free_gib)
                return

    def _kill(self, service: str, rank: RankSpec, free_gib: float) -> None:
        floor = _floor_gib(rank)
        doing = self.follower.progress(service).get(rank.container, "not promoted")
        why = f"{free_gib:.1f} GiB of memory left, floor {floor:g} GiB: {rank.container} killed ({doing})"
        self.log(f"{service}: {why}")
        self.follower.killed(service, rank.container, why)
        self.low.clear()
        try:
            self.node.run(commands.kill(rank.container))
        except (CommandFailed, ConnectionLost) as error:  # it has ended by itself, or the next looks try again
            self.log(f"{service}: {error}")


def _floor_gib(rank: RankSpec) -> float:
    try:
        return floor_gib(engine_spec.of(rank).parsed.swap.reserve_gib)
    except ValueError:  # of another version: the recipe may keep back less, and the node must not hang
        return FLOOR_GIB
