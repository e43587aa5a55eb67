"""Run the smoke suite against one server: checks and claims decide, the client sends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from requests import Session

from sparkops.config.recipe import Recipe
from sparkops.errors import Interrupted
from sparkops.exchange import Reply, Request
from sparkops.serving.smoke.checks import Steps
from sparkops.serving.smoke.client import PAUSE_S, Client, StallDetector
from sparkops.serving.smoke.coverage import Check, of_pass
from sparkops.serving.smoke.openai import Unusable
from sparkops.serving.smoke.prompts import Round
from sparkops.serving.smoke.results import CheckFinding, CheckVerdict, Entry, SmokeReport


@dataclass(frozen=True)
class Server:
    """The server to probe. `open` returns a session connected to it, as sparkops.node.http.session does.

    `restarts` is called at the end of each pass. `alone`: no other client sends requests. `pause_s` lies between the
    two tries of a connection. With `stall_s` a request fails once the engine has made no step for so many seconds; past
    its deadline while the engine makes steps, it has neither passed nor failed.
    """

    open: Callable[[], Session]
    recipe: Recipe
    restarts: Callable[[], int] = int
    alone: bool = True
    cancel: threading.Event = field(default_factory=threading.Event)
    pause_s: float = PAUSE_S
    stall_s: float | None = None


def run(
    server: Server, report: Callable[[CheckVerdict], None] = lambda _: None, passes: int | None = None
) -> SmokeReport:
    """Run passes of all checks of the recipe until enough passed or one failed. Raises Interrupted, EngineBusy."""
    return _Suite(server, report, passes or server.recipe.probe.passes).run()


@dataclass
class _Suite:
    server: Server
    report: Callable[[CheckVerdict], None]
    required: int
    verdicts: list[CheckVerdict] = field(default_factory=list)
    transcript: list[Entry] = field(default_factory=list)
    start_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        server, stall_s = self.server, self.server.stall_s
        watch = (lambda: StallDetector(server.open, stall_s)) if stall_s else None
        self.client = Client(server.open, server.cancel, server.pause_s, watch)

    def run(self) -> SmokeReport:
        """Run the passes: see run above."""
        passed = 0
        while passed < self.required and self._pass(passed + 1):
            passed += 1
        took_s = time.monotonic() - self.start_s
        return SmokeReport(passed, self.required, tuple(self.verdicts), tuple(self.transcript), took_s)

    def _pass(self, number: int) -> bool:
        """Run one pass. Return whether all checks passed."""
        run = Round(self.server.recipe, number, alone=self.server.alone, restarts=self.server.restarts)
        runs = of_pass(self.server.recipe, number)
        for name, check in runs.items():
            if check.before:
                self._take(name, number, check.before(run))
        first = len(self.verdicts)
        for name, check in runs.items():
            verdict = self._check(name, check, run)
            self.verdicts.append(verdict)
            self.report(verdict)
            if not verdict.ok and (check.ends or verdict.finding.silent):  # further requests would show nothing new
                return False
        return all(verdict.ok for verdict in self.verdicts[first:])

    def _check(self, name: str, check: Check, run: Round) -> CheckVerdict:
        start_s, sent = time.monotonic(), len(self.transcript)
        finding = self._take(name, run.number, check.ask(run))
        verdict = CheckVerdict(name, run.number, time.monotonic() - start_s, finding)
        self.transcript[sent:] = [replace(entry, ok=verdict.ok) for entry in self.transcript[sent:]]
        return verdict

    def _take(self, name: str, number: int, steps: Steps) -> CheckFinding:
        """Send the requests of a check until it returns its finding."""
        replies: tuple[Reply, ...] | None = None
        try:
            while True:
                requests = next(steps) if replies is None else steps.send(replies)
                replies = self._send(name, number, requests)
        except StopIteration as end:
            finding: CheckFinding = end.value
            return finding
        except Unusable as error:
            return CheckFinding(str(error), silent=error.silent)

    def _send(self, name: str, number: int, requests: tuple[Request, ...]) -> tuple[Reply, ...]:
        if self.server.cancel.is_set():
            raise Interrupted("interrupted")
        at_s = time.monotonic() - self.start_s
        replies = self.client.send(requests)
        sent = zip(requests, replies, strict=True)
        self.transcript += [Entry(name, number, at_s, request, reply, ok=True) for request, reply in sent]
        return replies
