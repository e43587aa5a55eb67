"""What is sampled of a container that becomes an answering server."""

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
from sparkops.nodes.host import GIB, HostFacts
from sparkops.startup.verdict import Line, MemorySample, Sample


@dataclass
class LogCursor:
    """Reads a container's log once, from its last start on: Docker's timestamps tell what has been read."""

    member: Member
    container: Container
    last: str = ""

    def new_lines(self) -> Iterator[Line]:
        """The lines since the last call."""
        # What an earlier start of the container said is not about this one. Docker notes the start a little late.
        since = facts.timestamp(self.last) if self.last else self.container.started_at
        before = self.last
        for stamp, text in facts.log_lines(self.member.engine.log(self.container.name, since=since - 1.0)):
            if stamp > before:
                self.last = stamp
                yield Line(max(0.0, facts.timestamp(stamp) - self.container.started_at), text)


@dataclass
class StartMonitor:
    """What looks at one starting container. The age of a start is counted on the node's own clock."""

    member: Member
    first: Container
    asking: Session
    cursor: LogCursor
    born_s: float
    clock: Callable[[], float] = time.monotonic
    usage: Usage = field(default_factory=Usage)
    memory: list[MemorySample] = field(default_factory=list)

    def sample(self) -> Sample:
        """One look. Raises StartFailed when the container is gone."""
        at_s = self.clock() - self.born_s
        container = look(self.member, self.first.name)
        if container.running:
            self.usage = facts.parse_usage(self.member.engine.usage(container.name))
        available_gib = _host(self.member).memory_available_gib
        self.memory.append(
            MemorySample(at_s, available_gib, self.usage.memory_bytes / GIB if container.running else 0.0)
        )
        return Sample(
            at_s=at_s,
            lines=tuple(self.cursor.new_lines()),
            running=container.running,
            restarted=container.restarts > self.first.restarts,
            exit_code=container.exit_code,
            oom_killed=container.oom_killed,
            available_gib=available_gib,
            healthy=container.running and endpoints.healthy(self.asking),
            cpu_s=self.usage.cpu_s,
            read_bytes=self.usage.read_bytes,
        )


def look(member: Member, name: str) -> Container:
    """A container that must be there. Raises StartFailed when it is not any more."""
    inspect = member.engine.container(name)
    if inspect is None:
        raise StartFailed(member.name, f"{name} was removed while it was needed")
    return facts.parse_container(member.name, inspect)


def _host(member: Member) -> HostFacts:
    return host.parse(member.node.run(host.MEMORY).stdout)
