"""Samples of a container that becomes an answering server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from requests import Session

from sparkops.docker import facts
from sparkops.docker.facts import Container, Usage
from sparkops.engine import endpoints
from sparkops.errors import StartFailed
from sparkops.nodes import host
from sparkops.nodes.connected import Member
from sparkops.nodes.host import GIB
from sparkops.startup.verdict import Line, MemorySample, Sample


@dataclass
class LogCursor:
    """Reader of a container's log from its last start on, each line once by Docker's timestamps."""

    member: Member
    container: Container
    last: str = ""

    def new_lines(self) -> Iterator[Line]:
        """Yield the lines since the last call."""
        # Lines of earlier starts are left out. Docker records the start a little late.
        since = facts.timestamp(self.last) if self.last else self.container.started_at
        before = self.last
        for stamp, text in facts.log_lines(self.member.engine.log(self.container.name, since=since - 1.0)):
            if stamp > before:
                self.last = stamp
                yield Line(max(0.0, facts.timestamp(stamp) - self.container.started_at), text)


@dataclass
class StartMonitor:
    """Sampler of one starting container. The age of a start is counted on the node's own clock."""

    member: Member
    first: Container
    session: Session
    cursor: LogCursor
    born_s: float
    clock: Callable[[], float] = time.monotonic
    usage: Usage = field(default_factory=Usage)
    memory: list[MemorySample] = field(default_factory=list)

    def sample(self) -> Sample:
        """Return one sample. Raises StartFailed for a container that no longer exists."""
        at_s = self.clock() - self.born_s
        container = _inspect(self.member, self.first.name)
        if container.running:
            self.usage = facts.parse_usage(self.member.engine.usage(container.name))
        available_gib = host.parse(self.member.node.run(host.MEMORY).stdout).memory_available_gib
        used_gib = self.usage.memory_bytes / GIB if container.running else 0.0
        self.memory.append(MemorySample(at_s, available_gib, used_gib))
        return Sample(
            at_s=at_s,
            lines=tuple(self.cursor.new_lines()),
            running=container.running,
            restarted=container.restarts > self.first.restarts,
            exit_code=container.exit_code,
            oom_killed=container.oom_killed,
            available_gib=available_gib,
            healthy=container.running and endpoints.healthy(self.session),
            cpu_s=self.usage.cpu_s,
            read_bytes=self.usage.read_bytes,
        )


def _inspect(member: Member, name: str) -> Container:
    inspect = member.engine.container(name)
    if inspect is None:
        raise StartFailed(member.name, f"{name} was removed while it was needed")
    return facts.parse_container(member.name, inspect)
