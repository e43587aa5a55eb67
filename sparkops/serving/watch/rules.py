"""The rules of the watch: what a guard sees of an engine over time, and what is wrong with it. Pure, without a clock.

A false alarm is the worst failure: an operator learns to ignore the watch. So unknown is never taken for wrong, no
clock of a rule advances while nothing was seen, and an engine that makes steps is never called dead.

`advance` takes one look at an engine after another; `breaches` returns what the rules find then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from sparkops.config.recipe import Recipe
from sparkops.engines.load import read, steps
from sparkops.exchange import Reply
from sparkops.node.host import Clocks
from sparkops.serving.smoke import garbage, openai
from sparkops.serving.smoke.prompts import COMPLETIONS, EMBEDDINGS, RERANK
from sparkops.serving.smoke.results import SmokeReport
from sparkops.serving.watch.pace import EVERY_S, WARM_S, Pace
from sparkops.swap.journal import HOUR_S, PAUSES_S, RESTARTS

ASK_S = 60.0
"""Least seconds between two light questions: one of some tokens a minute costs an idle engine well below 1 %."""
FAILURES = 3
"""Light questions in a row without a usable answer before a finding. The gate and the bake repeat a failed pass once
(`guard.smoke_runs.WRONG`); an engine that has proven itself gets one more try."""
BAD_ANSWERS = 3
"""Light questions in a row with garbage as the answer before a finding, for the same reason."""
SAMPLE_S = 45.0
"""Age at which a sample of an engine no longer shows that it is idle: three pauses of the guard between two samples."""
CLOCKS_S = 120.0
"""Least seconds between two samples of a GPU's clocks, while requests run: `docker exec` takes 0.25 s of a core."""
STUCK = 5
"""Samples in a row with a busy GPU at low clocks before a finding, so eight minutes of load: a hot GPU, or one at its
power limit, lowers its clocks for a while."""
DOWN_S = max(PAUSES_S)
"""Seconds that a rank may be down before a finding: a restart within the budget may be due only after so long."""
MOST_RESTARTS = RESTARTS
"""Restarts within an hour that are a finding: the whole budget, after which only an operator starts the engine."""


NO_PACE = Pace()


class Rule(StrEnum):
    """The rules, by the code of their findings."""

    STALLED = "STALLED"
    """Requests run or wait, the engine makes no step, and a light question gets no answer either."""
    UNANSWERED = "UNANSWERED"
    """The engine is idle, and light questions get no answer."""
    GARBAGE = "GARBAGE"
    """The answers to light questions are no text."""
    RESTARTS = "RESTARTS"
    """The engine was restarted too often within an hour."""
    RANK_DOWN = "RANK_DOWN"
    """A rank of the active release does not run, and nothing starts it."""
    SLOW = "SLOW"
    """The engine is much slower than the same release was on this node (serving/watch/pace.py)."""
    CLOCKS_LOW = "CLOCKS_LOW"
    """A GPU of the engine computes at low clocks."""
    LOW_MEMORY = "LOW_MEMORY"
    """The node has almost no memory left, and this engine was started last (guard/watch/memory_floor.py)."""


@dataclass(frozen=True)
class Breach:
    """What a rule finds, and for how many seconds it has held."""

    rule: Rule
    age_s: float
    detail: str


@dataclass(frozen=True)
class EngineSample:
    """The figures of one engine at `at_s`: requests that run or wait, and figures of which a step changes some."""

    at_s: float
    pending: int
    steps: tuple[float, ...]


def sample(at_s: float, figures: Mapping[str, float]) -> EngineSample | None:
    """Return a sample from the figures of /metrics; None where they are those of no engine."""
    try:
        load = read(figures)
    except ValueError:
        return None
    return EngineSample(at_s, load.running + load.waiting, steps(figures))


@dataclass(frozen=True)
class LightAnswer:
    """The answer to a light question. `silent`: why there is no usable one; `garbage`: why it is no text."""

    silent: str = ""
    garbage: str = ""


READERS: Mapping[str, Callable[[Reply], object]] = {
    COMPLETIONS: openai.chat,
    EMBEDDINGS: openai.vectors,
    RERANK: openai.scores,
}
"""By path of a light question: how its answer is read. Raises Unusable."""


def judged(report: SmokeReport, recipe: Recipe) -> LightAnswer:
    """Return what a light question has shown.

    A wrong answer in a chat is an answer: only the gate asks for the right one. Vectors and scores have no such middle:
    the gate has seen this model get the same texts right, and nothing in them is drawn by chance.
    """
    entries = [entry for entry in report.transcript if entry.request.path in READERS]
    if not entries:
        return LightAnswer(silent="; ".join(report.findings))
    try:
        answers = [READERS[entry.request.path](entry.reply) for entry in entries]
    except openai.Unusable as error:
        return LightAnswer(silent=str(error))
    if recipe.serve.task != "chat":
        return LightAnswer(garbage="" if report.ok else "; ".join(report.findings))
    for text in (answer.text for answer in answers if isinstance(answer, openai.ChatReply)):
        for problem, expected, got in garbage.garbage(text, recipe.probe.smoke.text):
            return LightAnswer(garbage=f"{problem}; expected {expected}; got {got}: {openai.shown(text)}")
    return LightAnswer()


def patience_s(recipe: Recipe) -> float:
    """Return the seconds without a step after which an engine that owes an answer counts as dead.

    Longer than any step can take. The bake's own bound, `swap.stall_s`, is too short for a warning about an engine that
    has no warm release beside it: a step may wait for a kernel that is compiled or tuned at the first request of its
    shape, or for a CUDA graph. How long an engine may do that in silence is `probe.startup.compile_stall_s` of its
    recipe, 300 s unless it says otherwise. A long prompt is no such step: vLLM reads it in pieces of
    `max-num-batched-tokens`, and each changes the use of the KV cache.
    """
    return max(recipe.swap.stall_s, recipe.probe.startup.compile_stall_s)


@dataclass(frozen=True)
class EngineLook:
    """What a guard knows of one rank of a promoted release at `at_s`, in seconds that only grow."""

    at_s: float
    start: float = 0.0
    """When its container was started: another value is another run."""
    running: bool = True
    starting: bool = False
    """Whether its guard is about to start it, or does."""
    hindered: str = ""
    """Why its start, which its guard retries, does not happen."""
    paused: bool = False
    """Whether nothing can be concluded: it loads, its node has a lease, or Docker was not read."""
    sample: EngineSample | None = None
    """Its newest figures; None while they are unknown, and of a rank above 0."""
    ordered_restarts: int = 0
    """Restarts by guard and leader within an hour."""
    docker_restarts: int = 0
    """Restarts by a policy of Docker since the container was created."""
    answer: LightAnswer | None = None
    """The answer to the light question that has ended since the last look."""
    alone: bool = False
    """Whether it has one rank, and no other engine of sparkops runs on its node."""
    tok_s: float | None = None
    """The speed that was measured since the last look, in tokens per second."""
    clocks: tuple[Clocks, ...] = ()
    """A sample of each of its GPUs, taken since the last look; empty where none was, or nothing shows them."""
    short: str = ""
    """What its node lacks in memory, where it was started last; empty where nothing, and of any other engine."""


@dataclass(frozen=True)
class EngineWatch:
    """What the looks at one rank have shown so far."""

    last: EngineLook
    still_s: float = 0.0
    """Seconds without a step while an answer is owed: requests are pending, or a light question was not answered."""
    silent: tuple[str, ...] = ()
    """Why the last light questions got no answer, in a row."""
    bad: tuple[tuple[float, str], ...] = ()
    """When the last light questions were answered with garbage, in a row, and why it is garbage."""
    asked_s: float = 0.0
    """When the last light question was sent."""
    restarted_s: tuple[float, ...] = ()
    """When Docker has restarted the container within the last hour."""
    down_s: float | None = None
    """Since when it does not run; None while it does, or may be about to."""
    settled_s: float | None = None
    """Since when it has been seen loaded, on a node without other work; None while it is not."""
    measured_s: float = 0.0
    """When its speed was measured last."""
    pace: Pace = NO_PACE
    clocks_s: float = 0.0
    """When the clocks of its GPUs were read last."""
    stuck: tuple[tuple[float, Clocks], ...] = ()
    """When the last samples have shown a GPU busy and slow, in a row, and its clocks."""


def begin(look: EngineLook, pace: Pace = NO_PACE) -> EngineWatch:
    """Return a watch after its first look. The first question is due ASK_S later. `pace`: of its release so far."""
    down_s = None if look.running or look.starting or look.paused else look.at_s
    settled_s = look.at_s if look.running and not look.paused else None
    first, at_s = _counted(look, look.sample), look.at_s
    return EngineWatch(
        first, asked_s=at_s, down_s=down_s, settled_s=settled_s, measured_s=at_s, pace=pace, clocks_s=at_s
    )


def advance(watch: EngineWatch, look: EngineLook) -> EngineWatch:
    """Return a watch after one more look."""
    watch = replace(watch, restarted_s=_restarted_s(watch, look), down_s=_down_s(watch, look))
    if look.start != watch.last.start or not look.running:
        another = begin(look, watch.pace)
        return replace(another, restarted_s=watch.restarted_s, down_s=watch.down_s)
    if look.paused:  # the next sample is compared with the last one, and the time between them does not count
        old = watch.last.sample
        return replace(watch, last=_counted(look, old and replace(old, at_s=look.at_s)), settled_s=None)
    if watch.settled_s is None:
        watch = replace(watch, settled_s=look.at_s)
    if look.tok_s is not None:
        watch = replace(watch, pace=watch.pace.after(look.tok_s))
    if any(gpu.busy for gpu in look.clocks):  # idle GPUs are slow too, and show nothing
        slow = next((gpu for gpu in look.clocks if gpu.stuck), None)
        watch = replace(watch, stuck=(*watch.stuck, (look.at_s, slow))[-STUCK:] if slow else ())
    watch = _sampled(watch, look.sample)
    if look.answer is not None:
        watch = _answered(watch, look.at_s, look.answer)
    return replace(watch, last=_counted(look, look.sample or watch.last.sample))


def _counted(look: EngineLook, sample: EngineSample | None) -> EngineLook:
    """Return a look with this sample and without its results, each of which counts once."""
    return replace(look, sample=sample, answer=None, tok_s=None, clocks=())


def _sampled(watch: EngineWatch, new: EngineSample | None) -> EngineWatch:
    """Count the time between two samples if no step was made in it. A step shows that the engine lives."""
    old = watch.last.sample
    if new is None or old is None or new.at_s <= old.at_s:
        return watch
    if new.steps != old.steps:
        return replace(watch, still_s=0.0, silent=())
    owes = new.pending or watch.silent
    return replace(watch, still_s=watch.still_s + new.at_s - old.at_s if owes else 0.0)


def _answered(watch: EngineWatch, at_s: float, answer: LightAnswer) -> EngineWatch:
    if answer.silent:
        return replace(watch, silent=(*watch.silent, answer.silent)[-FAILURES:])
    bad = (*watch.bad, (at_s, answer.garbage))[-BAD_ANSWERS:] if answer.garbage else ()
    return replace(watch, still_s=0.0, silent=(), bad=bad)


def _restarted_s(watch: EngineWatch, look: EngineLook) -> tuple[float, ...]:
    grown = max(0, look.docker_restarts - watch.last.docker_restarts)
    return tuple(at_s for at_s in (*watch.restarted_s, *[look.at_s] * grown) if look.at_s - at_s < HOUR_S)


def _down_s(watch: EngineWatch, look: EngineLook) -> float | None:
    if look.running or look.starting:
        return None
    if watch.down_s is None:
        return None if look.paused else look.at_s
    return watch.down_s + (look.at_s - watch.last.at_s if look.paused else 0.0)


def asks(watch: EngineWatch, recipe: Recipe) -> bool:
    """Return whether a light question is due: the engine is idle, or has stalled and an answer would show otherwise.

    vLLM's count of running requests stays as it was where clients abort all of them at once, until the next step
    (vllm-project/vllm#29928, #22545): such an engine looks stalled and answers.
    """
    look, sample = watch.last, _fresh(watch.last)
    if sample is None:
        return False
    return look.at_s - watch.asked_s >= ASK_S and (not sample.pending or watch.still_s >= patience_s(recipe))


def measures(watch: EngineWatch) -> bool:
    """Return whether a sample of the speed is due: the engine is idle and well, and so is its node."""
    look, sample = watch.last, _fresh(watch.last)
    if sample is None or sample.pending or not look.alone or watch.silent or watch.bad or watch.settled_s is None:
        return False
    return look.at_s - watch.settled_s >= WARM_S and look.at_s - watch.measured_s >= EVERY_S


def reads_clocks(watch: EngineWatch) -> bool:
    """Return whether a sample of the clocks is due: requests run, or it is a rank above 0, whose work is not known."""
    look, sample = watch.last, _fresh(watch.last)
    works = sample.pending > 0 if sample else look.sample is None and look.running and not look.paused
    return works and look.at_s - watch.clocks_s >= CLOCKS_S


def _fresh(look: EngineLook) -> EngineSample | None:
    """Return the figures of an engine that runs and has loaded; None if they are unknown or old."""
    if look.paused or not look.running or look.sample is None or look.at_s - look.sample.at_s > SAMPLE_S:
        return None
    return look.sample


def breaches(watch: EngineWatch, recipe: Recipe) -> Iterator[Breach]:
    """Yield what the rules find."""
    look, pending = watch.last, watch.last.sample.pending if watch.last.sample else 0
    if watch.still_s >= patience_s(recipe):
        still = f"no engine step for {watch.still_s:.0f} s"
        if pending and watch.silent:
            detail = f"{still} with {pending} requests running or waiting; a light question: {watch.silent[-1]}"
            yield Breach(Rule.STALLED, watch.still_s, detail)
        elif not pending and len(watch.silent) >= FAILURES:
            detail = f"{still}; {FAILURES} light questions in a row: {watch.silent[-1]}"
            yield Breach(Rule.UNANSWERED, watch.still_s, detail)
    if len(watch.bad) >= BAD_ANSWERS:
        detail = f"{BAD_ANSWERS} answers in a row are garbage: {watch.bad[-1][1]}"
        yield Breach(Rule.GARBAGE, look.at_s - watch.bad[0][0], detail)
    if (restarts := look.ordered_restarts + len(watch.restarted_s)) >= MOST_RESTARTS:
        yield Breach(Rule.RESTARTS, 0.0, f"{restarts} restarts within an hour")
    if watch.down_s is not None and look.at_s - watch.down_s >= DOWN_S:
        age_s = look.at_s - watch.down_s
        why = f"its start is retried in vain: {look.hindered}" if look.hindered else "nothing starts it"
        yield Breach(Rule.RANK_DOWN, age_s, f"not running for {age_s:.0f} s: {why.splitlines()[0]}")
    if len(watch.stuck) >= STUCK:
        since_s, clocks = watch.stuck[0][0], watch.stuck[-1][1]
        yield Breach(Rule.CLOCKS_LOW, look.at_s - since_s, str(clocks))
    if watch.pace.slow:
        yield Breach(Rule.SLOW, 0.0, watch.pace.detail)
    if look.short:
        yield Breach(Rule.LOW_MEMORY, 0.0, look.short)
