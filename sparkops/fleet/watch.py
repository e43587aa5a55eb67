"""Watch a container become an answering server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from requests import Session

from sparkops.config.recipe import Startup
from sparkops.errors import Interrupted, StartFailed
from sparkops.facts import docker as docker_facts
from sparkops.facts import host, vllm_log
from sparkops.facts.docker import Container, Usage
from sparkops.fleet.connected import Member
from sparkops.fleet.progress import Event, Tell
from sparkops.nodes.http import session
from sparkops.plan.startup import Sample, Watch, advance
from sparkops.probes import openai
from sparkops.release import Rank

POLL_S = 1.0
USAGE_EVERY_S = 5.0
NO_USAGE = Usage()


@dataclass(frozen=True)
class Start:
    """A container that starts: where it is, where its server will listen, and when it counts as hung."""

    node: str
    service: str
    container: str
    port: int
    limits: Startup

    @classmethod
    def of(cls, rank: Rank) -> Start:
        """The start of a rank."""
        recipe = rank.release.recipe
        return cls(rank.node, recipe.service, rank.container, rank.port, recipe.probe.startup)


@dataclass
class LogCursor:
    """Reads a container's log once, from `since_s` on: Docker's timestamps tell what has been read."""

    member: Member
    container: str
    since_s: float = 0.0
    last: str = ""

    def new_lines(self) -> Iterator[str]:
        """The lines since the last call."""
        since = docker_facts.timestamp(self.last) - 1.0 if self.last else self.since_s
        before = self.last
        for stamp, text in docker_facts.log_lines(self.member.engine.log(self.container, since=since)):
            if stamp > before:
                self.last = stamp
                yield text


@dataclass
class Eyes:
    """What looks at one starting container. The age of a start is counted on the node's own clock."""

    member: Member
    start: Start
    asking: Session
    cursor: LogCursor
    born_s: float
    clock: Callable[[], float] = time.monotonic
    usage: Usage = NO_USAGE
    usage_at_s: float = float("-inf")

    def sample(self) -> Sample:
        """One look. Raises StartFailed when the container is gone."""
        at_s = self.clock() - self.born_s
        container = look(self.member, self.start.container)
        if container.running and at_s - self.usage_at_s >= USAGE_EVERY_S:
            self.usage = docker_facts.parse_usage(self.member.engine.usage(container.name))
            self.usage_at_s = at_s
        return Sample(
            at_s=at_s,
            lines=tuple(self.cursor.new_lines()),
            running=container.running,
            exit_code=container.exit_code,
            oom_killed=container.oom_killed,
            healthy=container.running and openai.healthy(self.asking),
            cpu_s=self.usage.cpu_s,
            read_bytes=self.usage.read_bytes,
        )


def look(member: Member, name: str) -> Container:
    """A container that must be there. Raises StartFailed when it is not any more."""
    inspect = member.engine.container(name)
    if inspect is None:
        raise StartFailed(member.name, f"{name} was removed while it was needed")
    return docker_facts.parse(member.name, inspect)


def until_healthy(member: Member, start: Start, tell: Tell) -> Watch:
    """Watch until /health answers. Raises StartFailed with the reason, the last lines and the known cause."""
    watch = Watch(start.limits)
    with ExitStack() as open_things:
        asking = open_things.enter_context(session(member.node, start.port))
        container = look(member, start.container)
        # What an earlier start of the container said is not about this one. Docker notes the start a little late.
        cursor = LogCursor(member, start.container, since_s=container.started_at - 1.0)
        eyes = Eyes(member, start, asking, cursor, time.monotonic() - _age(member, container))
        while not watch.over:
            sample = eyes.sample()
            before, watch = watch, advance(watch, sample)
            _tell(tell, start, before, watch, sample.at_s)
            if not watch.over and member.node.cancel.wait(POLL_S):
                raise Interrupted(f"{start.container} goes on loading; the same deploy again adopts it")
    if watch.failure:
        raise _failed(start, watch)
    return watch


def _age(member: Member, container: Container) -> float:
    now_s = host.parse(member.node.run(host.MEMORY).stdout).now_s
    return max(0.0, now_s - container.started_at)


def _tell(tell: Tell, start: Start, before: Watch, watch: Watch, at_s: float) -> None:
    new = watch.reached[len(before.reached) :]  # one look may find several
    for stage, reached_s in new:
        tell(Event(start.node, f"{stage} after {reached_s:.0f} s"))
    if not new:
        tell(Event(start.node, f"{watch.text}, {at_s:.0f} s", lasting=False))


def _failed(start: Start, watch: Watch) -> StartFailed:
    """Why, the last lines and the likely cause, and where to read on."""
    last = "".join(f"\n    {line}" for line in watch.tail[-12:])
    cause = vllm_log.cause(watch.tail)
    text = f"{start.container} did not start: {watch.failure}{last}"
    step = f"The whole log: sparkops logs {start.service} --node {start.node}"
    return StartFailed(start.node, text + (f"\n  likely cause: {cause}" if cause else ""), next_step=step)
