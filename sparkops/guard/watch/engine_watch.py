"""The watch over the promoted engines of this node: it samples, asks, keeps evidence, and reports what the rules find.

It changes no engine: the leader learns from the report which one is dead or answers garbage. A thread of its own runs
it: neither orders nor memory relief wait for it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace

from sparkops.command import Command
from sparkops.config.recipe import Recipe
from sparkops.engines import endpoints
from sparkops.errors import CommandFailed, SparkopsError
from sparkops.guard.disk.notes import Notes
from sparkops.guard.follow import smoke_runs
from sparkops.guard.follow.engines import reason
from sparkops.guard.follow.local_service import PromotedRank
from sparkops.guard.report.node_report import Sampled
from sparkops.guard.watch.workers import Workers
from sparkops.node.host import CLOCKS_ARGV, POWER_CUT, Clocks, parse_clocks
from sparkops.node.http import session
from sparkops.node.local import LocalNode
from sparkops.serving import engine_spec
from sparkops.serving.smoke import coverage
from sparkops.serving.smoke.results import SmokeReport
from sparkops.serving.watch import rules
from sparkops.serving.watch.finding import EngineFinding
from sparkops.serving.watch.pace import Pace
from sparkops.serving.watch.rules import Breach, EngineLook, EngineWatch, LightAnswer, Rule

WATCH_S = 10.0
"""Seconds between two looks. They read what the guard has read anyway, and send nothing but light questions."""
CLOCKS_WITHIN_S = 15.0
NO_PROGRAM = (126, 127)
"""Exit codes of `docker exec` for a program that the container does not have: one without a GPU has no nvidia-smi."""
ASKERS = 4
"""Light questions in progress at once; one to a dead engine lasts until its timeout."""
STEPS: Mapping[Rule, str] = {
    Rule.STALLED: "sparkops history {service} has the evidence, and shows the restart",
    Rule.UNANSWERED: "sparkops history {service} has the evidence, and shows the restart",
    Rule.GARBAGE: "sparkops probe {service} runs all checks; sparkops rollback {service} returns to the last release",
    Rule.RESTARTS: "sparkops history {service} has the evidence; sparkops logs {service}",
    Rule.RANK_DOWN: "sparkops status; docker start {container}, on {node}, starts it",
    Rule.SLOW: "sparkops status --gpu; nvidia-smi -q -d PERFORMANCE and docker stats, on {node}",
    Rule.CLOCKS_LOW: (
        "nvidia-smi -q -d PERFORMANCE, on {node}, shows whether heat or power is the reason; otherwise "
        f"sparkops node drain {{node}}, then {POWER_CUT}"
    ),
    Rule.LOW_MEMORY: "ps -eo rss,args --sort=-rss | head, on {node}, shows what takes it; sparkops stop {service}",
}
"""By rule: the next step."""
DEAD = (Rule.STALLED, Rule.UNANSWERED)
"""Rules that find an engine dead, so that its leader restarts it if no answer comes through the gateway either."""


def gpu_clocks(node: LocalNode, container: str) -> tuple[Clocks, ...]:
    """Return the clocks of the GPUs of an engine from the driver's program in its container: the guard has no GPU.

    Raises CommandFailed where there is none.
    """
    return parse_clocks(
        node.run(Command(("docker", "exec", container, *CLOCKS_ARGV), timeout_s=CLOCKS_WITHIN_S)).stdout
    )


@dataclass(frozen=True)
class Asked:
    """The result of one light question: what it has shown, and its transcript. `answer` is None if nothing."""

    answer: LightAnswer | None
    transcript: str = ""


@dataclass
class Watched:
    """One promoted rank under watch."""

    rank: PromotedRank
    recipe: Recipe
    question: Recipe | None
    """The recipe for its light question; None where its own disables the questions, or of a rank above 0."""
    watch: EngineWatch
    asking: Future[Asked] | None = None
    asked_start: float = 0.0
    """The run that the question in progress was sent to."""
    transcript: str = ""
    """Of the last light question."""
    measuring: Future[float | None] | None = None
    measured_start: float = 0.0
    """The run whose speed is being measured."""
    reading: Future[tuple[Clocks, ...]] | None = None
    """The clocks of its GPUs that are being read."""
    without_clocks: float | None = None
    """The run whose container does not show them."""
    found: dict[Rule, EngineFinding] = field(default_factory=dict)


@dataclass
class EngineWatcher:
    """The watch of one node. `look` runs every WATCH_S seconds, in one thread; `findings` may be called by others.

    `promoted` returns the containers to watch, `newest` the last sample of one of them.
    """

    node: LocalNode
    notes: Notes
    promoted: Callable[[], list[PromotedRank]]
    newest: Callable[[str], Sampled | None]
    log: Callable[[str], None]
    tell: Callable[[str, float, str, str], None]
    """Takes what is found of one run, for the report to the leader (`Follower.note_watch`)."""
    over: threading.Event = field(default_factory=threading.Event)
    """Ends the questions in progress."""
    short: Callable[[str], str] = lambda _: ""
    """Returns what the node lacks in memory, of the container that was started last (`MemoryFloor.short`)."""
    send: Callable[[LocalNode, int, Recipe, threading.Event], SmokeReport] = smoke_runs.light_question
    """Sends one light question to a port of this node."""
    measure: Callable[[LocalNode, int, Recipe, threading.Event], float | None] = smoke_runs.pace
    """Measures the speed of an engine on a port of this node; None if it cannot be measured now."""
    read_clocks: Callable[[LocalNode, str], tuple[Clocks, ...]] = gpu_clocks
    """Reads the clocks of the GPUs of a container."""
    executor: Executor = field(default_factory=lambda: Workers(ASKERS, "light question"))
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    _watched: dict[str, Watched] = field(default_factory=dict)
    """By name of the container."""
    _open: tuple[EngineFinding, ...] = ()

    def open(self) -> tuple[EngineFinding, ...]:
        """Return the open findings."""
        return self._open

    def findings(self) -> list[dict[str, object]]:
        """Return the open findings, as the guard reports them."""
        return [asdict(finding) for finding in self._open]

    def look(self) -> None:
        """Look at every promoted engine once: note what begins and what ends, and ask what is due.

        Raises the error of an engine after it has looked at the others.
        """
        ranks = {rank.rank.container: rank for rank in self.promoted()}
        for name in set(self._watched) - set(ranks):
            self._end(self._watched[name], "no longer watched: its release changes, or was stopped")
            self._tell(self._watched.pop(name))
        with ExitStack() as looks:  # each callback runs, the last one first, whatever the others raise
            looks.callback(self._collect)
            for rank in reversed(ranks.values()):
                looks.callback(self._look, rank)

    def _collect(self) -> None:
        self._open = tuple(finding for known in self._watched.values() for finding in known.found.values())

    def _look(self, rank: PromotedRank) -> None:
        look, known = self._seen(rank), self._watched.get(rank.rank.container)
        if known and known.rank.rank != rank.rank:  # another release of the same name
            self._end(self._watched.pop(rank.rank.container), "no longer watched: its release changes")
            known = None
        if known is None:
            try:
                recipe = engine_spec.of(rank.rank).parsed
            except ValueError:  # of another version, which a deploy replaces
                return
            question = coverage.lightest(recipe) if rank.head else None
            watch = rules.begin(look, self._pace(rank))
            known = self._watched[rank.rank.container] = Watched(rank, recipe, question, watch)
        else:
            known.rank, pace = rank, known.watch.pace
            answered = replace(look, answer=self._answer(known, look), tok_s=self._tok_s(known, look))
            known.watch = rules.advance(known.watch, replace(answered, clocks=self._clocks(known)))
            if known.watch.pace != pace:
                self._keep_pace(rank, known.watch.pace)
        self._note(known)
        self._tell(known)
        self._begin(known, look)

    def _begin(self, known: Watched, look: EngineLook) -> None:
        """Read the clocks, and send the light question or the sample of the speed that is due, one at a time."""
        if not known.reading and known.without_clocks != look.start and rules.reads_clocks(known.watch):
            known.watch = replace(known.watch, clocks_s=look.at_s)
            known.reading = self.executor.submit(self._read_clocks, known, look.start)
        if known.question is None or known.asking or known.measuring:
            return
        if rules.asks(known.watch, known.recipe):
            known.watch = replace(known.watch, asked_s=look.at_s)
            known.asked_start = look.start
            known.asking = self.executor.submit(self._ask, known.rank, known.question)
        elif known.recipe.serve.task == "chat" and rules.measures(known.watch):
            known.watch = replace(known.watch, measured_s=look.at_s)
            known.measured_start = look.start
            known.measuring = self.executor.submit(self._measure, known.rank, known.recipe)

    def _pace(self, rank: PromotedRank) -> Pace:
        """Return the speed of a release on this node so far; of one that cannot be read, none."""
        try:
            return self.notes.state.paces(rank.service).get(rank.release, rules.NO_PACE)
        except (SparkopsError, OSError) as error:
            self.log(f"{rank.service}: speed so far not read: {reason(error)}")
            return rules.NO_PACE

    def _keep_pace(self, rank: PromotedRank, pace: Pace) -> None:
        try:
            self.notes.state.note_pace(rank.service, rank.release, pace)
        except (SparkopsError, OSError) as error:
            self.log(f"{rank.service}: speed not saved: {reason(error)}")

    def _seen(self, rank: PromotedRank) -> EngineLook:
        container = rank.container
        sampled = self.newest(rank.rank.container) if rank.head else None
        return EngineLook(
            at_s=self.clock(),
            start=container.started_at if container else 0.0,
            running=container is not None and container.running,
            starting=rank.starting,
            hindered=rank.hindered,
            paused=rank.unknown,
            sample=rules.sample(sampled.at_s, sampled.figures) if sampled else None,
            ordered_restarts=rank.restarts,
            docker_restarts=container.restarts if container else 0,
            alone=rank.alone,
            short=self.short(rank.rank.container),
        )

    def _answer(self, known: Watched, look: EngineLook) -> LightAnswer | None:
        """Return the answer to a question that has ended; None while none has, and of one to an earlier run."""
        if known.asking is None or not known.asking.done():
            return None
        ended, known.asking = known.asking, None
        asked = ended.result()
        known.transcript = asked.transcript
        return asked.answer if known.asked_start == look.start else None

    def _tok_s(self, known: Watched, look: EngineLook) -> float | None:
        """Return the speed that was measured; None while none was, and of an earlier run or a node with other work."""
        if known.measuring is None or not known.measuring.done():
            return None
        ended, known.measuring = known.measuring, None
        tok_s = ended.result()
        return tok_s if look.alone and known.measured_start == look.start else None

    def _clocks(self, known: Watched) -> tuple[Clocks, ...]:
        """Return the clocks that were read; none where none were."""
        if known.reading is None or not known.reading.done():
            return ()
        ended, known.reading = known.reading, None
        return ended.result()

    def _read_clocks(self, known: Watched, start: float) -> tuple[Clocks, ...]:
        try:
            return self.read_clocks(self.node, known.rank.rank.container)
        except (SparkopsError, OSError) as error:
            if isinstance(error, CommandFailed) and error.completed.exit_code in NO_PROGRAM:
                known.without_clocks = start
            else:
                self.log(f"{known.rank.rank.container}: clocks not read: {reason(error)}")
        return ()

    def _measure(self, rank: PromotedRank, recipe: Recipe) -> float | None:
        port = rank.container.port if rank.container else 0
        try:
            return self.measure(self.node, port, recipe, self.over)
        except (SparkopsError, OSError, ValueError) as error:
            self.log(f"{rank.rank.container}: speed not measured: {reason(error)}")
            return None

    def _ask(self, rank: PromotedRank, question: Recipe) -> Asked:
        port = rank.container.port if rank.container else 0
        try:
            report = self.send(self.node, port, question, self.over)
        except (SparkopsError, OSError, ValueError) as error:
            self.log(f"{rank.rank.container}: light question not sent: {reason(error)}")
            return Asked(None)
        return Asked(rules.judged(report, question), json.dumps(report.as_json(), indent=2))

    def _note(self, known: Watched) -> None:
        """Write an event for each finding that begins or ends. The evidence is kept before the event."""
        breaches = {breach.rule: breach for breach in rules.breaches(known.watch, known.recipe)}
        for rule in set(known.found) - set(breaches):
            self._end_one(known, rule, "ended")
        for rule, breach in breaches.items():
            finding = self._finding(known, breach)
            if rule in known.found:
                known.found[rule] = replace(finding, since=known.found[rule].since)
                continue
            self.notes.note_finding(known.rank.release, finding, self._evidence(known))
            known.found[rule] = finding

    def _tell(self, known: Watched) -> None:
        container = known.rank.container
        if container is None:
            return
        dead = next((known.found[rule].detail for rule in DEAD if rule in known.found), "")
        garbage = known.found.get(Rule.GARBAGE)
        self.tell(container.name, container.started_at, dead, garbage.detail if garbage else "")

    def _finding(self, known: Watched, breach: Breach) -> EngineFinding:
        rank = known.rank
        names = {"service": rank.service, "container": rank.rank.container, "node": self.node.name}
        return EngineFinding(
            code=breach.rule.value,
            since=self.now() - breach.age_s,
            detail=breach.detail,
            next_step=STEPS[breach.rule].format(**names),
            **names,
        )

    def _evidence(self, known: Watched) -> dict[str, str]:
        """Return the last light question and the page of metrics by file name. Log and inspect are added to them."""
        files = {"question.json": known.transcript} if known.transcript else {}
        container = known.rank.container
        if known.rank.head and container and container.running:
            with closing(session(self.node, container.port)) as asking:
                page = endpoints.metrics_page(asking)
            files |= {"metrics.txt": page} if page else {}
        return files

    def _end(self, known: Watched, why: str) -> None:
        for rule in tuple(known.found):
            self._end_one(known, rule, why)

    def _end_one(self, known: Watched, rule: Rule, why: str) -> None:
        self.notes.end_finding(known.found.pop(rule), why)
