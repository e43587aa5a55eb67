"""Run the smoke suite over one server: the checks decide (plan/), the client asks (probes/)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from requests import Session

from sparkops.config.recipe import Recipe
from sparkops.errors import Interrupted
from sparkops.exchange import Reply, Request
from sparkops.facts.openai import Unusable
from sparkops.fleet.pulse import Pulse
from sparkops.plan import checks, claims, coverage
from sparkops.plan.asking import Round
from sparkops.plan.checks import Steps
from sparkops.plan.smoke import Entry, Finding, Report, Verdict
from sparkops.probes.client import PAUSE_S, Client

CHECKS: dict[str, Callable[[Round], Steps]] = {
    "health": checks.health,
    "version": checks.version,
    "models": checks.models,
    "warm_up": checks.warm_up,
    "questions": checks.questions,
    "text": checks.text,
    "repeat": checks.repeat,
    "needle": checks.needle,
    "concurrent": checks.concurrent,
    "streaming": claims.streaming,
    "tools": claims.tools,
    "structured": claims.structured,
    "reasoning": claims.reasoning,
    "speed": claims.speed,
    "negatives": checks.negatives,
    "metrics": checks.metrics,
}
ONCE = {"warm_up"}  # only in the first pass


def _no_restarts() -> int:
    return 0


@dataclass(frozen=True)
class Server:
    """What is probed. `open` gives sessions that know the way to it, as sparkops.nodes.http.session does.

    `restarts` is asked at the end of each pass. `alone`: nobody else sends requests meanwhile. `pause_s` lies between
    the two tries of a connection. An answer is given up once the engine has made no step for `stall_s` seconds;
    None: not before its deadline.
    """

    open: Callable[[], Session]
    recipe: Recipe
    restarts: Callable[[], int] = _no_restarts
    api_key: str | None = None
    alone: bool = True
    cancel: threading.Event = field(default_factory=threading.Event)
    pause_s: float = PAUSE_S
    stall_s: float | None = None


def ignore(_: Verdict) -> None:
    """Tell nobody."""


def run(server: Server, tell: Callable[[Verdict], None] = ignore, passes: int | None = None) -> Report:
    """Full passes of every check that the recipe calls for, until enough have passed or one has failed.

    A pass goes on after a wrong answer, so that all reasons are known; a server that gives no answer ends it.
    Raises Interrupted.
    """
    return _Suite(server, tell, passes or server.recipe.probe.passes).run()


@dataclass
class _Suite:
    server: Server
    tell: Callable[[Verdict], None]
    wanted: int
    verdicts: list[Verdict] = field(default_factory=list)
    transcript: list[Entry] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        server, stall_s = self.server, self.server.stall_s
        watch = (lambda: Pulse(server.open, stall_s).stopped) if stall_s else None
        self.client = Client(server.open, server.api_key, server.cancel, server.pause_s, watch)

    def run(self) -> Report:
        """See run above."""
        passed = 0
        while passed < self.wanted and self._pass(passed + 1):
            passed += 1
        took_s = time.monotonic() - self.began_s
        return Report(passed, self.wanted, tuple(self.verdicts), tuple(self.transcript), took_s)

    def _pass(self, number: int) -> bool:
        """One pass; whether all went well."""
        keyed = self.server.api_key is not None
        this = Round(self.server.recipe, number, keyed=keyed, alone=self.server.alone)
        runs = [each.name for each in coverage.planned(self.server.recipe, keyed=keyed) if each.runs]
        if "metrics" in runs:
            self._take("metrics", number, checks.look_at_metrics(this))
        first = len(self.verdicts)
        for name in runs:
            if name in ONCE and number > 1:
                continue
            verdict = self._check(name, this)
            self.verdicts.append(verdict)
            self.tell(verdict)
            if verdict.ends:
                return False
        return all(each.ok for each in self.verdicts[first:])

    def _check(self, name: str, this: Round) -> Verdict:
        began_s, sent = time.monotonic(), len(self.transcript)
        if name == "restarts":
            finding = checks.restarts(self.server.restarts())
        else:
            finding = self._take(name, this.number, CHECKS[name](this))
        verdict = Verdict(name, this.number, time.monotonic() - began_s, finding)
        self.transcript[sent:] = [replace(each, ok=verdict.ok) for each in self.transcript[sent:]]
        return verdict

    def _take(self, name: str, number: int, steps: Steps) -> Finding:
        """Send what a check asks for until it has its finding."""
        replies: tuple[Reply, ...] | None = None
        try:
            while True:
                requests = next(steps) if replies is None else steps.send(replies)
                replies = self._send(name, number, requests)
        except StopIteration as end:
            found: Finding = end.value
            return found
        except Unusable as error:
            return Finding(str(error), silent=error.silent)

    def _send(self, name: str, number: int, requests: tuple[Request, ...]) -> tuple[Reply, ...]:
        if self.server.cancel.is_set():
            raise Interrupted("interrupted")
        at_s = time.monotonic() - self.began_s
        replies = self.client.send(requests)
        sent = zip(requests, replies, strict=True)
        self.transcript += [Entry(name, number, at_s, request, reply, ok=True) for request, reply in sent]
        return replies
