"""What a guard does in threads: the effects that change containers, and the watch over each start."""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sparkops.config.recipe import Recipe
from sparkops.docker.facts import Container
from sparkops.docker.places import CONTAINER
from sparkops.errors import Interrupted, SparkopsError
from sparkops.guard import proving
from sparkops.guard.engines import Engines, reason
from sparkops.guard.free_memory import LACK, Measuring
from sparkops.guard.loading import Loaded, Loading
from sparkops.guard.state import State
from sparkops.guard.tasks import Job, Measure, MeasuredRoom, WatchedStart
from sparkops.guard.tended import Tended
from sparkops.guard_client import engine_spec
from sparkops.nodes.local import LocalNode
from sparkops.startup import estimate
from sparkops.startup.estimate import Forecast
from sparkops.swap import effects
from sparkops.swap.model import Answer, RankSpec

RETRY_S = 5.0


@dataclass
class Jobs:
    """Runs one task at a time for each service. `lock` guards every Tended; `wake` is set when one has changed."""

    state: State
    node: LocalNode
    engines: Engines
    log: Callable[[str], None]
    lock: threading.RLock = field(default_factory=threading.RLock)
    wake: threading.Event = field(default_factory=threading.Event)

    def begin(self, tended: Tended, job: Job) -> None:
        """Run a task in a thread."""
        tended.job = job
        self._thread(f"{tended.service}: {job.task}", lambda: self._work(tended, job))

    def watch(self, tended: Tended, container: Container) -> None:
        """Watch a start in a thread."""
        rank, start = tended.ranks[container.name], WatchedStart(container.started_at)
        tended.watched[container.name] = start
        self._thread(f"watch {container.name}", lambda: self._watch(tended, rank, container, start))

    @staticmethod
    def _thread(name: str, target: Callable[[], None]) -> None:
        threading.Thread(target=target, name=name, daemon=True).start()

    def _work(self, tended: Tended, job: Job) -> None:
        """Execute a task. What fails is noted as a problem, or retried later."""
        try:
            self._execute(tended, job)
        except Interrupted:
            self.log(f"{tended.service}: {job.task}: cancelled")
        except (SparkopsError, OSError, ValueError) as error:
            self._failed(tended, job, reason(error))
        except Exception as error:  # noqa: BLE001 - a bug with one service must not cost the others their guard
            self.log(traceback.format_exc())
            self._failed(tended, job, f"{job.task}: {error!r}")
        finally:
            with self.lock:
                tended.job, tended.changed_s = None, time.monotonic()
                tended.started = tended.started or isinstance(job.task, effects.StartEngine)
            self.wake.set()

    def _execute(self, tended: Tended, job: Job) -> None:
        match job.task:
            case effects.CreateEngine(rank=rank):
                self.engines.create(rank)
            case effects.StartEngine(container=container):
                self.engines.start(container)
            case effects.StopEngine(container=container):
                self._unwatch(tended, container)
                self.engines.stop(container, loading=tended.loading(container))
            case effects.ProveEngine(container=container, key=key):
                self._prove(tended, container, key, job.cancel)
            case Measure(container=container):
                self._measure(tended, container, job.cancel)

    def _failed(self, tended: Tended, job: Job, why: str) -> None:
        self.log(f"{tended.service}: {job.task}: {why}")
        with self.lock:
            match job.task:
                case effects.CreateEngine(rank=rank):
                    tended.problems[rank.container] = why
                case effects.StartEngine(container=container):
                    tended.problems[container] = why
                case _:
                    tended.retry_s = time.monotonic() + RETRY_S

    def _unwatch(self, tended: Tended, container: str) -> None:
        with self.lock:
            if start := tended.watched.pop(container, None):
                start.cancel.set()

    def _measure(self, tended: Tended, container: str, cancel: threading.Event) -> None:
        recipe, key = self._recipe(tended, container), tended.record.key(container)
        drop = tended.dropped.get(container) != key
        guard = self.engines.container(CONTAINER) if drop else None
        measuring = Measuring(self.node, container, recipe, guard, not key, self._show(tended, container), cancel)
        if drop:
            measuring.drop()
            tended.dropped[container] = key
        began_s = time.monotonic()
        room = MeasuredRoom(measuring.free_gib(), began_s, time.monotonic())
        with self.lock:
            tended.rooms[container] = room
            self._note_lack(tended, container, room, recipe.swap.memory_return_s)

    @staticmethod
    def _note_lack(tended: Tended, container: str, room: MeasuredRoom, patience_s: float) -> None:
        """A start that finds no memory for too long has failed; the leader decides what serves instead."""
        if room.free_gib >= tended.ranks[container].claim_gib:
            tended.lacking.pop(container, None)
            return
        since_s = tended.lacking.setdefault(container, room.began_s)
        if room.ended_s - since_s >= patience_s:
            lack = tended.progress.get(container, "").removeprefix(LACK)
            step = f"See what holds it (docker ps, nvidia-smi); a reboot of {tended.node} gives it back."
            tended.problems[container] = f"memory not freed within {patience_s:g} s: {lack}\nnext: {step}"

    def _prove(self, tended: Tended, container: str, key: str, cancel: threading.Event) -> None:
        """Note the verdict on a rank, unless another start has taken the place of the one that was proven.

        The smoke suite runs on rank 0; the network that NCCL uses is read from the log of every rank.
        """
        proven = tended.containers[container]
        if not tended.matches(proven):
            self._note_proof(tended, proven, key, f"{container} runs with another spec")
            return
        spec = engine_spec.of(tended.ranks[container])
        problem, files = "", dict[str, str]()
        if not spec.index:
            report = proving.prove(self.node, proven, spec.parsed, self._show(tended, container), cancel)
            problem, files = report.failure, {"probe.json": json.dumps(report.as_json(), indent=2)}
        problem = problem or self.engines.network_problem(proven, ray=spec.ray)
        now = self.engines.container(container)
        if now is None or now.started_at != proven.started_at:
            return
        self._note_proof(tended, proven, key, problem)
        if problem:
            self._save(tended, proven, problem, files)

    def _note_proof(self, tended: Tended, container: Container, key: str, problem: str) -> None:
        with self.lock:
            tended.proofs[container.name] = (key, Answer.NO if problem else Answer.YES)
            tended.progress.pop(container.name, None)
            if problem:
                tended.problems[container.name] = problem

    def _watch(self, tended: Tended, rank: RankSpec, container: Container, start: WatchedStart) -> None:
        try:
            recipe = engine_spec.of(rank).parsed
            forecast, show = self._forecast(recipe, container), self._show(tended, container.name)
            unanswered = self._note_unanswered(tended, container)
            loaded = Loading(self.node, container, recipe, forecast, show, start.cancel, unanswered).follow()
            if loaded:
                self._loaded(tended, container, recipe, loaded)
        except (SparkopsError, OSError, ValueError) as error:
            self.log(f"{container.name}: its start is not watched: {reason(error)}")
            start.cancel.wait(RETRY_S)
        except Exception:  # noqa: BLE001 - as in _work
            self.log(f"{container.name}: its start is not watched: {traceback.format_exc()}")
            start.cancel.wait(RETRY_S)
        finally:
            with self.lock:
                if tended.watched.get(container.name) is start:
                    del tended.watched[container.name]
            self.wake.set()

    def _note_unanswered(self, tended: Tended, container: Container) -> Callable[[], None]:
        def note() -> None:
            with self.lock:
                tended.unanswered[container.name] = container.started_at

        return note

    def _loaded(self, tended: Tended, container: Container, recipe: Recipe, loaded: Loaded) -> None:
        """Note how a start ended. Evidence comes last: nothing waits for it."""
        name = container.name
        with self.lock:
            tended.progress.pop(name, None)
            known = tended.problems.pop(name, "")
            problem = loaded.problem and tended.killed.get(name, loaded.problem)
            if problem:
                tended.problems[name] = problem
            else:
                tended.answered[name] = container.started_at
        self.wake.set()
        if problem and not known:  # a start that has stalled is watched on, in case it answers after all
            self._save(tended, container, problem, loaded.files)
        elif not problem and loaded.samples > 1:  # what answered at the first sample was no start
            kind = estimate.kind(recipe, container.inputs)
            started = estimate.started(container.release, kind, loaded.watch)
            self.state.learn(tended.service, started.model_dump(mode="json"))

    def _save(self, tended: Tended, container: Container, why: str, files: Mapping[str, str]) -> None:
        """Keep the evidence of a failure, and note it for `history`."""
        text = f"{container.name}: {why.splitlines()[0]}"
        event = {"kind": "evidence", "text": text, "node": self.node.name, "lasting": True}
        try:
            collected = {**files, **self.engines.evidence(container.name)}
            path = self.state.keep(tended.service, container.release, collected)
            saved = {"evidence": [f"{self.node.name}: docker cp {CONTAINER}:{path} ."]} if path else {}
            self.state.add_event(tended.service, {**event, **saved})
        except (SparkopsError, OSError) as error:
            self.log(f"{container.name}: evidence not saved: {reason(error)}")

    def _forecast(self, recipe: Recipe, container: Container) -> Forecast | None:
        expected_s = recipe.expected.cold_start_s if recipe.expected else None
        past = estimate.remembered(self.state.starts(recipe.service))
        return estimate.forecast(container.release, estimate.kind(recipe, container.inputs), expected_s, past)

    @staticmethod
    def _recipe(tended: Tended, container: str) -> Recipe:
        rank = tended.ranks.get(container)
        if rank is None:
            raise Interrupted(f"{container} is not ordered any more")
        return engine_spec.of(rank).parsed

    def _show(self, tended: Tended, container: str) -> Callable[[str], None]:
        def show(text: str) -> None:
            with self.lock:
                tended.progress[container] = text

        return show
