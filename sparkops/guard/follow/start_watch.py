"""Sample a starting container."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from requests import Session

from sparkops.engines import endpoints
from sparkops.errors import StartFailed
from sparkops.node import host
from sparkops.node.docker import facts
from sparkops.node.docker.facts import Container, Usage
from sparkops.node.member import Member
from sparkops.serving.startup.verdict import Line, MemorySample, Sample
from sparkops.swap.model import Answer
from sparkops.units import GIB

LOG_LINES = 2000
"""Most lines of one read of a log, its end: Docker keeps up to 100 MB of an engine that has run for days, and a guard
that restarts reads no more of it than of a young one. A line has up to 16 KiB."""


@dataclass
class StartMonitor:
    """Sampler of one starting container. `born_s`: its start on this machine's monotonic clock.

    `last`: Docker's timestamp of the last log line read; empty before the first one. `health`: the answer of /health.
    """

    member: Member
    first: Container
    session: Session
    born_s: float
    last: str = ""
    usage: Usage = field(default_factory=Usage)
    memory: list[MemorySample] = field(default_factory=list)
    health: Answer = Answer.UNKNOWN
    ask: Callable[[Session], Answer] = endpoints.health

    def sample(self) -> Sample:
        """Return one sample; /health comes first, since Docker may hang. Raises StartFailed for a removed container."""
        self.health = self.ask(self.session)
        at_s, name = time.monotonic() - self.born_s, self.first.name
        inspect = self.member.engine.container(name)
        if inspect is None:
            raise StartFailed(self.member.name, f"{name} was removed during its start")
        container = facts.parse_container(self.member.name, inspect)
        if container.running:
            self.usage = facts.parse_usage(self.member.engine.usage(name))
        available_gib = host.parse(self.member.node.run(host.MEMORY).stdout).memory_available_gib
        used_gib = self.usage.memory_bytes / GIB if container.running else 0.0
        self.memory.append(MemorySample(at_s, available_gib, used_gib))
        return Sample(
            at_s=at_s,
            lines=tuple(self._new_lines()),
            running=container.running,
            restarted=container.restarts > self.first.restarts,
            exit_code=container.exit_code,
            oom_killed=container.oom_killed,
            available_gib=available_gib,
            healthy=container.running and self.health is Answer.YES,
            cpu_s=self.usage.cpu_s,
            read_bytes=self.usage.read_bytes,
        )

    def _new_lines(self) -> Iterator[Line]:
        """Yield the lines of the log since the last call."""
        # Skips lines of earlier starts. Docker records the start a little late.
        started_s = self.first.started_at
        since_s = facts.timestamp(self.last) if self.last else started_s
        before = self.last
        log = self.member.engine.log(self.first.name, since=since_s - 1.0, tail=LOG_LINES)
        for stamp, text in facts.log_lines(log):
            if stamp > before:
                self.last = stamp
                yield Line(max(0.0, facts.timestamp(stamp) - started_s), text)
