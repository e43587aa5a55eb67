"""What a guard does in threads: the effects that change containers, and the watch over each start."""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from sparkops.config.recipe import Recipe
from sparkops.engines import runtime
from sparkops.errors import ConnectionLost, Interrupted, NotReady, SparkopsError
from sparkops.guard.disk.notes import Notes
from sparkops.guard.disk.state import State
from sparkops.guard.follow import smoke_runs
from sparkops.guard.follow.engine_port import EnginePort
from sparkops.guard.follow.engines import Engines, reason
from sparkops.guard.follow.free_memory import LACK, Measuring
from sparkops.guard.follow.loading import Loaded, Loading
from sparkops.guard.follow.local_service import LocalService
from sparkops.guard.follow.start import Run
from sparkops.guard.follow.tasks import Job, Measure, MeasuredRoom
from sparkops.node.docker.facts import Container
from sparkops.node.docker.places import CONTAINER
from sparkops.node.http import session
from sparkops.node.local import LocalNode
from sparkops.serving import engine_spec
from sparkops.serving.comparison import answers, verdict
from sparkops.serving.comparison.answers import Baseline
from sparkops.serving.comparison.asking import Asking, of_new
from sparkops.serving.engine_spec import EngineSpec
from sparkops.serving.startup import estimate
from sparkops.serving.startup.estimate import Forecast
from sparkops.swap import effects
from sparkops.swap.model import Answer, RankSpec

PROOFS = 3
"""Attempts at a proof that cannot be carried out, such as one whose spec or reply cannot be parsed."""


@dataclass
class Jobs:
    """Runs one task at a time for each service. `lock` guards every service; `wake` is set when one has changed."""

    state: State
    node: LocalNode
    engines: Engines
    log: Callable[[str], None]
    lock: threading.RLock = field(default_factory=threading.RLock)
    wake: threading.Event = field(default_factory=threading.Event)
    retry_s: float = 5.0
    """Seconds between a failure and the next attempt."""
    user: int = runtime.USER
    """User ID of engines on this node: only its programs are taken for one."""
    notes: Notes = field(init=False)

    def __post_init__(self) -> None:
        self.notes = Notes(self.state, self.engines, self.lock, self.log)

    def begin(self, service: LocalService, job: Job) -> None:
        """Run a task in a thread. Raises RuntimeError where none can be started: then the task is not in progress."""
        with self.lock:  # without it no thread notes its end
            threading.Thread(
                target=self._work, args=(service, job), name=f"{service.name}: {job.task}", daemon=True
            ).start()
            service.job = job

    def watch_starts(self, service: LocalService, boot: str) -> None:
        """Watch each engine that has not answered in a thread; end the watch over one that answered or was stopped."""
        ranks = service.ranks
        for name, container in service.containers.items():
            if name not in ranks:
                continue
            loaded = service.loaded(container) is Answer.YES and not self._lost_port(service, container)
            due = container.running and not loaded and not service.down(name, boot)
            run = service.run(container)
            if container.running and not due:
                run.unwatch()
            elif due and not run.watch:
                self._watch_start(service, ranks[name], container, run)

    def _port(self, container: Container) -> EnginePort:
        return EnginePort(self.node, container.port, self.user)

    def _lost_port(self, service: LocalService, container: Container) -> bool:
        """Return whether another program has the port of an engine that answered: what answers now is not the engine.

        It counts as loading then, with the problem, until the engine itself answers.
        """
        if container.rank or not container.port or not container.running:
            return False
        port = self._port(container)
        try:
            lost = port.owned() is Answer.NO
        except OSError as error:
            self.log(f"{container.name}: unknown whose port {container.port} is: {error}")
            return False
        if lost:
            service.lose_port(container, f"{container.name}: {port.taken}")
        return lost

    def check_stop(self, service: LocalService, ended: Container) -> None:
        """Ask Docker in a thread whether an operator stopped a container: its reply may take long, or never come.

        Until it is known, the boot record does not start this container. Orders are followed all the same.
        """
        with self.lock:
            run = service.run(ended)
            if run.checking:
                return
            name = f"check the end of {ended.name}"
            threading.Thread(target=self._check_stop, args=(service, ended, run), name=name, daemon=True).start()
            run.checking = True

    def _check_stop(self, service: LocalService, ended: Container, run: Run) -> None:
        try:
            self.notes.check_stop(service, ended)
        except (SparkopsError, OSError, ValueError) as error:
            self.log(f"{ended.name}: unknown whether an operator stopped it: {reason(error)}")
            self.node.cancel.wait(self.retry_s)
        finally:
            with self.lock:
                run.checking = False
            self.wake.set()

    def _watch_start(self, service: LocalService, rank: RankSpec, container: Container, run: Run) -> None:
        cancel = threading.Event()
        args = (service, rank, container, run, cancel)
        with self.lock:
            threading.Thread(target=self._watch, args=args, name=f"watch {container.name}", daemon=True).start()
            run.watch = cancel

    def _work(self, service: LocalService, job: Job) -> None:
        """Execute a task. What fails is noted as a problem, or retried later."""
        try:
            self._execute(service, job)
        except Interrupted:
            self.log(f"{service.name}: {job.task}: cancelled")
        except ValueError as error:  # first: a reply that is no JSON is an OSError of requests as well
            self._failed(service, job, reason(error))
        except (ConnectionLost, NotReady, OSError) as error:
            self._failed(service, job, reason(error), lost=True)
        except SparkopsError as error:
            self._failed(service, job, reason(error))
        except Exception as error:  # noqa: BLE001 - a bug with one service must not cost the others their guard
            self.log(traceback.format_exc())
            self._failed(service, job, f"{job.task}: {error!r}")
        finally:
            with self.lock:
                service.job, service.changed_s = None, time.monotonic()
                service.started = service.started or isinstance(job.task, effects.StartEngine)
            self.wake.set()

    def _execute(self, service: LocalService, job: Job) -> None:
        match job.task:
            case effects.CreateEngine(rank=rank):
                self.engines.create(rank)
            case effects.StartEngine(container=container):
                self.engines.start(container)
                with self.lock:
                    service.start(container).accept()
            case effects.StopEngine(container=container):
                self._unwatch(service, container)
                self.engines.stop(container, loading=service.loading(container))
            case effects.ProveEngine(container=container, key=key):
                self._prove(service, container, key, job.cancel)
            case Measure():
                self._measure(service, job.task, job.cancel)

    def _failed(self, service: LocalService, job: Job, why: str, *, lost: bool = False) -> None:
        """Note why a task failed. `lost`: Docker or a connection failed, which shows nothing about the engine."""
        self.log(f"{service.name}: {job.task}: {why}")
        with self.lock:
            match job.task:
                case effects.CreateEngine(rank=rank) if rank == service.record.armed:
                    self.notes.refused(service, rank.container, why, lost=lost)
                case effects.CreateEngine(rank=rank):
                    service.start(rank.container).problem = why
                case effects.StartEngine(container=container):
                    self.notes.refused(service, container, why, lost=lost)
                case effects.ProveEngine(container=container, key=key) if not lost:
                    self._note_unproven(service, container, key, why)
                case _:
                    service.retry_s = time.monotonic() + self.retry_s

    def _note_unproven(self, service: LocalService, container: str, key: str, why: str) -> None:
        """Retry a proof that could not be carried out; after PROOFS attempts that is the verdict."""
        start = service.start(container)
        start.unproven[key] += 1
        if start.unproven[key] < PROOFS:
            service.retry_s = time.monotonic() + self.retry_s
            return
        start.proof = (key, Answer.NO)
        start.problem, start.progress = f"{container} could not be verified: {why}", ""

    def _unwatch(self, service: LocalService, container: str) -> None:
        with self.lock:
            start = service.start(container)
            start.run.unwatch()
            start.progress = ""

    def _measure(self, service: LocalService, task: Measure, cancel: threading.Event) -> None:
        container = task.container
        recipe, key = self._recipe(service, container), service.record.key(container)
        drop = service.start(container).dropped != key
        guard = self.engines.container(CONTAINER) if drop else None
        measuring = Measuring(
            self.node, container, recipe, guard, not key, self._show(service, container, cancel), cancel
        )
        if drop:
            measuring.drop()
            service.start(container).dropped = key
        began_s = time.monotonic()
        room = MeasuredRoom(measuring.free_gib(), began_s, time.monotonic())
        with self.lock:
            service.start(container).room = room
            self._note_lack(service, task, room, recipe.swap.memory_timeout_s)

    @staticmethod
    def _note_lack(service: LocalService, task: Measure, room: MeasuredRoom, patience_s: float) -> None:
        """Report a start as failed that lacks memory for too long; the leader decides which release serves."""
        start, claim_gib = service.start(task.container), service.ranks[task.container].claim_gib
        if room.free_gib >= claim_gib + task.reserved_gib:
            start.lacking_s = None
            return
        if room.free_gib >= claim_gib:
            reserved = f"{task.reserved_gib:g} GiB reserved for promoted engines that start again"
            start.progress = f"{LACK}{claim_gib:g} GiB claimed, {reserved}, {room.free_gib:.1f} GiB available"
        if start.lacking_s is None:
            start.lacking_s = room.began_s
        if room.ended_s - start.lacking_s >= patience_s:
            lack = start.progress.removeprefix(LACK)
            step = f"Find the process that uses it (docker ps, nvidia-smi); a reboot of {service.node} frees it."
            start.refused = f"memory not freed within {patience_s:g} s: {lack}\nnext: {step}"

    def _prove(self, service: LocalService, container: str, key: str, cancel: threading.Event) -> None:
        """Note the verdict on a rank, unless another start has taken the place of the one that was proven.

        The smoke suite runs on rank 0; the network that NCCL uses is read from the log of every rank.
        """
        proven = service.containers.get(container)
        if proven is None:
            raise NotReady(self.node.name, f"{container} cannot be read")
        if not service.matches(proven):
            self._note_proof(service, proven, key, f"{container} runs with another spec")
            return
        spec = engine_spec.of(service.ranks[container])
        problem, files = "", dict[str, str]()
        if not spec.index and not (problem := self._taken(proven)):
            report = smoke_runs.prove(self.node, proven, spec.parsed, self._show(service, container, cancel), cancel)
            problem, files = report.failure, {"probe.json": json.dumps(report.as_json(), indent=2)}
            problem = self._taken(proven, passed=report.ok) or problem
            if not problem:
                problem, more = self._compared(service, proven, spec, cancel)
                files |= more
        problem = problem or self.engines.network_problem(proven, ray=spec.ray)
        problem = problem or self.engines.gpu_problem(proven, spec.parsed)
        now = self.engines.container(container)
        if now is None or now.started_at != proven.started_at:
            return
        self._note_proof(service, proven, key, problem)
        if problem:
            self.notes.save_evidence(service, proven, problem, files)

    def _compared(
        self, service: LocalService, container: Container, spec: EngineSpec, cancel: threading.Event
    ) -> tuple[str, dict[str, str]]:
        """Compare a new release with the one that it replaces. Return why it is refused, and the evidence.

        A restart and a return compare nothing: their deploy has given this node no answers of the old release.
        """
        journal = service.record.copy
        swap, recipe = journal.swap if journal else None, spec.parsed
        if swap is None or swap.retries or recipe.swap.compare is None:
            return "", {}
        data = self.state.secret(service.name, answers.file_name(swap.intent))
        if data is None:
            return "", {}
        baseline = Baseline.model_validate_json(data)
        show = self._show(service, container.name, cancel)
        asking = Asking(container.release, recipe, lambda: session(self.node, container.port), cancel, show)
        found = verdict.compare(baseline, of_new(asking, baseline))
        self.notes.note_comparison(service, container, swap.intent, found)
        refused = recipe.swap.compare == "refuse" and found.beyond
        return found.refusal if refused else "", {"comparison.txt": f"{found}\n"}

    def _taken(self, container: Container, *, passed: bool = False) -> str:
        """Return that another program answers in place of an engine; empty if it does not.

        Raises NotReady if nothing listens after a suite that has `passed`: whose the answers were is unknown.
        """
        port = self._port(container)
        if port.owned() is Answer.UNKNOWN and passed:
            raise NotReady(self.node.name, f"{container.name} does not listen on port {container.port}")
        return f"{container.name}: {port.taken}" if port.taken else ""

    def _note_proof(self, service: LocalService, container: Container, key: str, problem: str) -> None:
        with self.lock:
            start = service.start(container.name)
            start.proof, start.progress = (key, Answer.NO if problem else Answer.YES), ""
            start.problem = problem or start.problem

    def _watch(
        self, service: LocalService, rank: RankSpec, container: Container, run: Run, cancel: threading.Event
    ) -> None:
        """Watch a start. /health comes before log and recipe: an engine that has loaded needs neither of them."""
        note, port = self._note_health(service, container, run), self._port(container)
        try:
            with closing(session(self.node, container.port)) as asking:
                health = port.health(asking)
            note(health)
            if health is Answer.YES:
                return
            recipe = engine_spec.of(rank).parsed
            forecast, show = self._forecast(recipe, container), self._show(service, container.name, cancel)
            loaded = Loading(self.node, container, recipe, forecast, show, cancel, note, port).follow()
            if loaded:
                self._loaded(service, container, run, recipe, loaded)
        except (SparkopsError, OSError, ValueError) as error:
            self.log(f"{container.name}: start not monitored: {reason(error)}")
            cancel.wait(self.retry_s)
        except Exception:  # noqa: BLE001 - as in _work
            self.log(f"{container.name}: start not monitored: {traceback.format_exc()}")
            cancel.wait(self.retry_s)
        finally:
            with self.lock:
                if run.watch is cancel:
                    run.watch = None
            self.wake.set()

    def _note_health(self, service: LocalService, container: Container, run: Run) -> Callable[[Answer], None]:
        def note(health: Answer) -> None:
            with self.lock:
                run.note_health(health)
                start = service.start(container.name)
                if health is Answer.YES and start.run is run:
                    start.answer()

        return note

    def _loaded(self, service: LocalService, container: Container, run: Run, recipe: Recipe, loaded: Loaded) -> None:
        """Note how a start ended. Evidence comes last: nothing waits for it."""
        with self.lock:
            start = service.start(container.name)
            reported = start.problem
            problem = loaded.problem and (run.killed or loaded.problem)
            start.problem, start.progress = problem, ""
        self.wake.set()
        if problem and not reported:  # a start that has stalled is watched on, in case it answers after all
            self.notes.save_evidence(service, container, problem, loaded.files)
        elif not problem and run.witnessed:  # how long a start took is known only if it was watched from its beginning
            kind = estimate.kind(recipe, container.inputs)
            started = estimate.started(container.release, kind, loaded.watch, recipe)
            self.state.learn(service.name, started.model_dump(mode="json"))

    def _forecast(self, recipe: Recipe, container: Container) -> Forecast | None:
        expected_s = recipe.expected.cold_start_s if recipe.expected else None
        past = estimate.remembered(self.state.starts(recipe.service))
        return estimate.forecast(container.release, estimate.kind(recipe, container.inputs), expected_s, past)

    @staticmethod
    def _recipe(service: LocalService, container: str) -> Recipe:
        rank = service.ranks.get(container)
        if rank is None:
            raise Interrupted(f"{container} is no longer ordered")
        return engine_spec.of(rank).parsed

    def _show(self, service: LocalService, container: str, cancel: threading.Event) -> Callable[[str], None]:
        def show(text: str) -> None:
            with self.lock:
                if not cancel.is_set():
                    service.start(container).progress = text

        return show
