"""Watch a container become an answering server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from requests import Session

from sparkops.config.recipe import Recipe
from sparkops.errors import Interrupted, StartFailed
from sparkops.facts import docker as docker_facts
from sparkops.facts import host
from sparkops.facts.advice import of_log as advice_of_log
from sparkops.facts.docker import Container, Usage
from sparkops.facts.exceptions import fold, headline
from sparkops.facts.host import GIB, HostFacts
from sparkops.fleet.connected import Member
from sparkops.fleet.keep import Keep
from sparkops.fleet.past import past
from sparkops.fleet.progress import Event, Tell
from sparkops.nodes.http import session
from sparkops.plan.pace import Forecast
from sparkops.plan.relief import floor_gib
from sparkops.plan.startup import Line, Memory, Sample, Watch, advance, memory_csv
from sparkops.probes import openai
from sparkops.release import Rank

POLL_S = 1.0
SHOWN_LINES, CAUSE_LINES = 12, 300


@dataclass(frozen=True)
class Start:
    """A container that starts: where it is, where its server will listen, and what it is made from."""

    node: str
    container: str
    port: int
    release: str
    recipe: Recipe

    @classmethod
    def of(cls, rank: Rank) -> Start:
        """The start of a rank."""
        return cls(rank.node, rank.container, rank.port, rank.release.id, rank.release.recipe)


@dataclass
class LogCursor:
    """Reads a container's log once, from its last start on: Docker's timestamps tell what has been read."""

    member: Member
    container: Container
    last: str = ""

    def new_lines(self) -> Iterator[Line]:
        """The lines since the last call."""
        # What an earlier start of the container said is not about this one. Docker notes the start a little late.
        since = docker_facts.timestamp(self.last) if self.last else self.container.started_at
        before = self.last
        for stamp, text in docker_facts.log_lines(self.member.engine.log(self.container.name, since=since - 1.0)):
            if stamp > before:
                self.last = stamp
                yield Line(max(0.0, docker_facts.timestamp(stamp) - self.container.started_at), text)


@dataclass
class Eyes:
    """What looks at one starting container. The age of a start is counted on the node's own clock."""

    member: Member
    first: Container
    asking: Session
    cursor: LogCursor
    born_s: float
    workers: Sequence[tuple[Member, str]] = ()
    clock: Callable[[], float] = time.monotonic
    usage: Usage = field(default_factory=Usage)
    memory: list[Memory] = field(default_factory=list)

    def sample(self) -> Sample:
        """One look. Raises StartFailed when the container is gone."""
        for member, name in self.workers:
            _must_live(member, name)
        at_s = self.clock() - self.born_s
        container = look(self.member, self.first.name)
        if container.running:
            self.usage = docker_facts.parse_usage(self.member.engine.usage(container.name))
        available_gib = _host(self.member).memory_available_gib
        self.memory.append(Memory(at_s, available_gib, self.usage.memory_bytes / GIB if container.running else 0.0))
        return Sample(
            at_s=at_s,
            lines=tuple(self.cursor.new_lines()),
            running=container.running,
            restarted=container.restarts > self.first.restarts,
            exit_code=container.exit_code,
            oom_killed=container.oom_killed,
            available_gib=available_gib,
            healthy=container.running and openai.healthy(self.asking),
            cpu_s=self.usage.cpu_s,
            read_bytes=self.usage.read_bytes,
        )


def _must_live(member: Member, name: str) -> None:
    """A replica without one of its ranks will not start: it is told at once, with that rank's own last lines."""
    container = look(member, name)
    if not container.running or container.restarts:
        tail = tuple(text for _, text in docker_facts.log_lines(member.engine.log(name, tail=CAUSE_LINES)))
        raise _failed(member.name, f"{name} ended with code {container.exit_code}", headline(tail), tail)


def look(member: Member, name: str) -> Container:
    """A container that must be there. Raises StartFailed when it is not any more."""
    inspect = member.engine.container(name)
    if inspect is None:
        raise StartFailed(member.name, f"{name} was removed while it was needed")
    return docker_facts.parse(member.name, inspect)


def until_healthy(
    member: Member, start: Start, tell: Tell, keep: Keep | None = None, workers: Sequence[tuple[Member, str]] = ()
) -> Watch:
    """Watch until /health answers. Raises StartFailed with the reason, the last lines and the known cause.

    `workers` are the containers of the other ranks, which must live meanwhile.

    The node's guard remembers how long it took, and `keep` what the memory did meanwhile.
    """
    with ExitStack() as opened:
        asking = opened.enter_context(session(member.node, start.port))
        first = look(member, start.container)
        known = opened.enter_context(past(member, start.release, start.recipe, first.inputs, tell))
        eyes = Eyes(member, first, asking, LogCursor(member, first), time.monotonic() - _age(member, first), workers)
        shown = Shown(tell, start.node, known.forecast())
        try:
            watch = _follow(eyes, Watch(start.recipe.probe.startup, floor_gib(start.recipe)), shown)
        finally:
            if keep:
                keep.note(member.name, "memory.csv", memory_csv(eyes.memory))
        if watch.failure:
            step = f"The whole log: sparkops logs {start.recipe.service} --node {start.node}"
            raise _failed(start.node, f"{start.container} did not start", watch.failure, watch.tail, step)
        if len(eyes.memory) > 1:  # what served at the first look was no start
            known.learn(watch)
    return watch


def _follow(eyes: Eyes, watch: Watch, shown: Shown) -> Watch:
    """Look until the verdict is in. What still runs then is looked at once more: its last words tell the cause."""
    while True:
        sample = eyes.sample()
        before, watch = watch, advance(watch, sample)
        shown.look(before, watch, sample.at_s)
        if watch.healthy or before.failure or (watch.failure and not sample.running):
            return watch
        if eyes.member.node.cancel.wait(POLL_S):
            raise Interrupted(f"{eyes.first.name} goes on loading; the same deploy again adopts it")


def _age(member: Member, container: Container) -> float:
    return max(0.0, _host(member).now_s - container.started_at)


def _host(member: Member) -> HostFacts:
    return host.parse(member.node.run(host.MEMORY).stdout)


@dataclass
class Shown:
    """Tells how a start goes on, and how much of it is left where that is known."""

    tell: Tell
    node: str
    forecast: Forecast | None
    begun: bool = False
    warned: bool = False

    def look(self, before: Watch, watch: Watch, at_s: float) -> None:
        """Tell what one look has found."""
        left = f", {self.forecast.left(watch, at_s)}" if self.forecast and not watch.over else ""
        new = watch.reached[len(before.reached) :]  # one look may find several
        for number, (stage, reached_s) in enumerate(new, 1):
            self.say(f"{stage} after {reached_s:.0f} s{left if number == len(new) and self.begun else ''}")
        if not new or not self.begun:
            self.say(f"{watch.text}{left or f', {at_s:.0f} s'}", lasting=bool(left) and not self.begun)
        self.begun = True
        warning = self.forecast.slow(at_s) if self.forecast and not watch.over else ""
        if warning and not self.warned:
            self.warned = True
            self.say(warning)

    def say(self, text: str, *, lasting: bool = True) -> None:
        """Tell it."""
        self.tell(Event(self.node, text, lasting=lasting))


def _failed(node: str, what: str, why: str, tail: tuple[str, ...], step: str = "") -> StartFailed:
    """Build the error: what failed and why, the last lines of its log, the likely cause, and the next steps."""
    last = tuple(fold(tail, headline(tail)))[-SHOWN_LINES:]
    advice = advice_of_log(tail)
    lines = [f"{what}: {why}" if why else what, *(f"    {line}" for line in last)]
    if advice:
        lines.append(f"  likely cause: {advice.cause}")
    steps = (advice.step if advice else "", step)
    return StartFailed(node, "\n".join(lines), next_step="\n".join(filter(None, steps)))
