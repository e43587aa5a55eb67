"""Report whose lock a run waits for, and how far that run is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import ValidationError

from sparkops.config.recipe import Recipe
from sparkops.errors import Busy, NodeError
from sparkops.facts import docker as docker_facts
from sparkops.facts import host
from sparkops.facts.docker import Container
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.guarded import Link
from sparkops.fleet.past import past
from sparkops.fleet.progress import Event, Tell
from sparkops.fleet.watch import LogCursor
from sparkops.plan.journal import Journal, Phase, Placed
from sparkops.plan.lock import Clock, held_s
from sparkops.plan.pace import Forecast
from sparkops.plan.startup import Sample, Watch, advance
from sparkops.plan.waiting import LockReport, Repeats

STARTS = (Phase.START, Phase.LOAD)


@dataclass
class FollowedStart:
    """A start that another run watches. Each call of `look` reads the lines since the last one."""

    member: Member
    cursor: LogCursor
    watch: Watch
    forecast: Forecast | None

    @classmethod
    def of(cls, member: Member, container: Container, placed: Placed) -> FollowedStart:
        """Open the start of a placed release. Raises NodeError, or ValidationError for a recipe of another version."""
        recipe = Recipe.model_validate(placed.recipe)
        with past(member, placed.release, recipe, container.inputs) as known:
            forecast = known.forecast()
        return cls(member, LogCursor(member, container), Watch(recipe.probe.startup), forecast)

    def look(self) -> tuple[Watch, str]:
        """Return the stage, and the time left in words. Raises NodeError."""
        now_s = host.parse(self.member.node.run(host.MEMORY).stdout).now_s
        at_s = max(0.0, now_s - self.cursor.container.started_at)
        self.watch = advance(self.watch, Sample(at_s, tuple(self.cursor.new_lines())))
        return self.watch, self.forecast.left(self.watch, at_s) if self.forecast else ""


@dataclass
class Waiting:
    """The wait of one run for the lock of `service`."""

    connected: Connected
    tell: Tell
    service: str
    repeats: Repeats = field(default_factory=Repeats)
    starts: dict[tuple[str, float], FollowedStart] = field(default_factory=dict)

    def report(self, link: Link, busy: Busy) -> None:
        """Report who holds the lock on the node of `link`; without a holder, the refusal. Raises NodeError."""
        found = next(self._holders(link), None)
        if found is None:
            self.say(link.node.name, f"waiting: {busy}", str(busy))
        else:
            self.say(link.node.name, str(found), found.key)

    def say(self, node: str, text: str, key: object) -> None:
        """Report `text`; a plain log keeps it if `key` is new, or after a while."""
        self.tell(Event(node, text, lasting=self.repeats.keeps(key, time.monotonic())))

    def _holders(self, link: Link) -> Iterator[LockReport]:
        """The holder of the service, then those of other services that load an engine on this node."""
        if own := self._holder(link, self.service):
            yield own
            return
        for service in link.ask("services", ""):
            with suppress(NodeError):  # a journal that the guard cannot read blocks no other service
                other = self._holder(link, service)
                if other and other.holder.loads:
                    yield other

    def _holder(self, link: Link, service: str) -> LockReport | None:
        said = link.ask("read", service)
        journal, clock = Journal.model_validate(said["journal"]), Clock(said["now_s"], said["boot"])
        if journal.holder is None:
            return None
        phase = journal.swap.phase if journal.swap else None
        start, left, problem = self._start(journal)
        return LockReport(service, journal.holder, held_s(journal.holder, clock), phase, start, left, problem)

    def _start(self, journal: Journal) -> tuple[Watch | None, str, str]:
        """The start of the new release, its time left, and why it could not be read."""
        swap = journal.swap
        if swap is None or swap.phase not in STARTS:
            return None, "", ""
        try:
            start = self._followed(swap.green)
            return (*start.look(), "") if start else (None, "", "")
        except NodeError as error:
            return None, "", " ".join(str(error).split())
        except ValidationError as error:
            return None, "", f"its recipe is of another version: {error.errors()[0]['msg']}"

    def _followed(self, placed: Placed) -> FollowedStart | None:
        """The start of a placed release, if its container exists. A restart is another start."""
        member = self.connected.member(placed.node)
        inspect = member.engine.container(placed.container)
        container = docker_facts.parse(placed.node, inspect) if inspect else None
        if container is None or not container.running:
            return None
        key = placed.where, container.started_at
        if key not in self.starts:
            self.starts[key] = FollowedStart.of(member, container, placed)
        return self.starts[key]
