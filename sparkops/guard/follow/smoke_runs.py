"""The smoke suite of a guard: in full on an engine of its node before the switch, in light passes during the bake."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from math import isfinite

from sparkops.config.node import NodeConfig
from sparkops.config.recipe import Recipe
from sparkops.errors import SparkopsError
from sparkops.names import Slot
from sparkops.node.docker.facts import Container
from sparkops.node.docker_api import Engine
from sparkops.node.http import direct, session
from sparkops.node.local import LocalNode
from sparkops.node.member import Member
from sparkops.serving import engine_spec
from sparkops.serving.smoke import claims, openai, suite
from sparkops.serving.smoke.client import Client, EngineBusy, load_now
from sparkops.serving.smoke.coverage import light, of_pass
from sparkops.serving.smoke.probing import restarts
from sparkops.serving.smoke.prompts import Round
from sparkops.serving.smoke.results import CheckVerdict, SmokeReport
from sparkops.serving.smoke.suite import Server
from sparkops.serving.watch.pace import TOKENS
from sparkops.swap.model import Answer, Deployment


def prove(
    node: LocalNode, container: Container, recipe: Recipe, show: Callable[[str], None], cancel: threading.Event
) -> SmokeReport:
    """Return the report of the passes that the recipe requires. A failed pass is repeated once before the verdict.

    Raises Interrupted once `cancel` is set, StartFailed if the container is gone, NotReady, ConnectionLost.
    """
    with closing(Engine(node)) as engine:
        member = Member(node.name, NodeConfig(transport="local"), node, engine)
        server = Server(
            open=lambda: session(node, container.port),
            recipe=recipe,
            restarts=lambda: restarts(member, container.name) - container.restarts,
            cancel=cancel,
        )
        passes = recipe.probe.passes
        report = suite.run(server, counting(recipe, passes, show))
        if report.ok:
            return report
        show(f"repeating a failed pass: {report.failure}")
        left = passes - report.passes
        return suite.run(server, counting(recipe, left, show), left)


def counting(recipe: Recipe, passes: int, show: Callable[[str], None]) -> Callable[[CheckVerdict], None]:
    """Return a receiver of verdicts that shows how many checks of all passes have passed, or the one that failed."""
    total = sum(len(of_pass(recipe, number)) for number in range(1, passes + 1))
    passed = count(1)

    def receive(verdict: CheckVerdict) -> None:
        if verdict.ok:
            show(f"{next(passed)} of {total} checks passed")
        else:
            show(f"{verdict.check} failed: {verdict.finding}")

    return receive


PAUSE_S = 10.0
WRONG = 2
"""Failed passes in a row before a verdict: one alone is repeated."""


@dataclass
class Baking:
    """The passes over one release. `look` never waits for one."""

    executor: Executor
    log: Callable[[str], None]
    check: Callable[[Deployment], str] = field(default_factory=lambda: light_pass)
    clock: Callable[[], float] = time.monotonic
    release: str = ""
    failures: int = 0
    problem: str = ""
    """What failed in the last pass; empty if it passed."""
    next_s: float = 0.0
    pending: Future[str] | None = None

    def wrong(self, deployment: Deployment | None) -> bool:
        """Return whether a release failed its last passes. Starts the next pass if one is due; None ends them."""
        if (deployment.release if deployment else "") != self.release:
            self.release, self.failures, self.pending = deployment.release if deployment else "", 0, None
            self.next_s = self.clock() + PAUSE_S
        if deployment is None:
            return False
        if self.pending is not None and self.pending.done():
            error = self.pending.exception()  # raised here, it would end every later look too
            self._learn(f"the pass itself failed: {error!r}" if error else self.pending.result())
        if self.pending is None and self.clock() >= self.next_s:
            try:
                self.pending = self.executor.submit(self.check, deployment)
            except RuntimeError as error:  # no thread can be started: that says nothing of the release
                self.next_s = self.clock() + 1.0
                self.log(f"{self.release}: light pass not started: {error}")
        return self.failures >= WRONG

    def judged(self, answers: dict[Slot, Answer], deployment: Deployment | None) -> dict[Slot, Answer]:
        """Return the answers by slot, NO for a `deployment` whose passes fail."""
        wrong = self.wrong(deployment)
        return {**answers, deployment.slot: Answer.NO} if wrong and deployment else answers

    @property
    def verdict(self) -> str:
        """What failed in the passes of a release that is wrong; empty otherwise."""
        return self.problem if self.failures >= WRONG else ""

    def _learn(self, problem: str) -> None:
        self.pending, self.next_s = None, self.clock() + (1.0 if problem else PAUSE_S)
        self.failures, self.problem = self.failures + 1 if problem else 0, problem
        if problem:
            self.log(f"{self.release}: a light pass failed: {problem}")


def light_pass(deployment: Deployment) -> str:
    """Return what is wrong with the answers of a release's engines, asked directly; empty if nothing is.

    An engine that makes steps and is too busy to answer in time is not wrong, nor one that cannot be asked now.
    """
    for rank in deployment.heads:
        spec = engine_spec.of(rank)
        recipe, port = light(spec.parsed), spec.rank(rank.node).port
        server = Server(
            open=lambda address=spec.address, port=port: direct(address, port),  # type: ignore[misc]
            recipe=recipe,
            alone=False,
            cancel=threading.Event(),
            stall_s=recipe.swap.stall_s,
        )
        try:
            report = suite.run(server, passes=1)
        except (EngineBusy, BlockingIOError):  # without a thread no request was sent
            continue
        except (SparkopsError, OSError) as error:
            return str(error)
        if not report.ok:
            return "; ".join(report.findings)
    return ""


def light_question(node: LocalNode, port: int, recipe: Recipe, cancel: threading.Event) -> SmokeReport:
    """Return the report of one light question to an engine of this node. Raises Interrupted once `cancel` is set.

    `recipe` is that of `coverage.lightest`. Without its own watch over steps: that of `watch.rules` sees them anyway.
    """
    return suite.run(Server(open=lambda: session(node, port), recipe=recipe, alone=False, cancel=cancel), passes=1)


SETTLES = 5
"""Looks at the figures after a sample of the speed, a second apart: vLLM may count its request for a moment longer."""


def pace(node: LocalNode, port: int, recipe: Recipe, cancel: threading.Event) -> float | None:
    """Return the tokens per second of one short stream from an engine of this node, after its first token.

    None where another request ran meanwhile, or the stream was not whole. Raises Interrupted once `cancel` is set.
    """
    before = load_now(lambda: session(node, port))
    if before is None or before.running + before.waiting:
        return None
    request = claims.stream_request(Round(recipe, alone=False), recipe.probe.smoke.text.prompt, TOKENS)
    (reply,) = Client(lambda: session(node, port), cancel).send((request,))
    try:
        stream = openai.stream(reply)
    except openai.Unusable:
        return None
    for _ in range(SETTLES):
        after = load_now(lambda: session(node, port))
        if after is not None and not after.running + after.waiting:
            others = after.generated - before.generated - stream.tokens
            tok_s = claims.decode_tok_s(stream)
            return tok_s if others <= 0 and tok_s is not None and isfinite(tok_s) else None
        cancel.wait(1.0)
    return None
