"""The traces of tests/swap/conformance on real nodes: what the leader sees there is what the simulation sees.

It lies here, and not beside the traces, for the gateway and the service that the other tests of this directory use.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sparkops.swap import wire
from sparkops.swap.fleet_state import GatewayView, Report
from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.model import Mode, Phase, RankSpec
from tests.fleet.shell import client
from tests.real.cases import some
from tests.real.service import GATEWAY, PATIENCE_S, QUICK, RELAY, Service
from tests.swap.conformance.play import Play
from tests.swap.conformance.projection import Naming, Recording, Snapshot, differences, names_of
from tests.swap.conformance.traces import MORE, TRACES, Act, Ask, KillEngine, KillGuard, Role, StopByHand, Trace

pytestmark = pytest.mark.fleet

NODES = {"node-1": "n1", "node-2": "n2"}
MACHINES = {trace: name for name, trace in NODES.items()}
POLL_S = 0.05
WARM = {"swap.keep_old_s": "600"}


@dataclass
class Recorder:
    """Looks at what the leader sees, over and over, until `over`."""

    service: Service
    recording: Recording = field(default_factory=Recording)
    journals: list[Journal] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """A stream to a guard that is killed ends, and the next one begins."""
        while not self.over.is_set():
            with suppress(OSError, json.JSONDecodeError), self._stream() as ask:
                while not self.over.wait(POLL_S):
                    self._take(ask())

    @contextmanager
    def _stream(self) -> Iterator[Callable[[], Any]]:
        argv = [client(), "exec", "-i", self.service.nodes.node(GATEWAY).container, *RELAY.split()]
        question = json.dumps({"op": "state", "format": SCHEMA, "service": self.service.name}) + "\n"
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stream:
            assert stream.stdin
            assert stream.stdout
            words, answers = stream.stdin, stream.stdout

            def ask() -> Any:
                words.write(question)
                words.flush()
                return json.loads(answers.readline())

            try:
                yield ask
            finally:
                stream.kill()

    def _take(self, reply: Any) -> None:
        if "ok" not in reply or not reply["ok"]["journal"]:
            return  # the leader has just started
        state = reply["ok"]
        reports = {node: wire.load_value(Report, report) for node, report in state["reports"].items()}
        gateway = wire.load_value(GatewayView, state["gateway"]) if state["gateway"] else None
        journal = wire.load_value(Journal, state["journal"])
        self.recording.snapshots.append(Snapshot(reports, gateway))
        if not self.journals or self.journals[-1] != journal:
            self.journals.append(journal)

    @property
    def settled(self) -> bool:
        """Whether nothing is in progress, every guard has reported so, and the map is as intended."""
        if not self.journals:
            return False
        journal, snapshot = self.journals[-1], self.recording.snapshots[-1]
        if journal.swap or journal.stopping or journal.stopped or not snapshot.gateway:
            return False
        adopted = [report.adopted for report in snapshot.reports.values()]
        view, active = snapshot.gateway, journal.active
        served = view.serves(active) if active else view.active is None
        return adopted == [journal.revision] * len(NODES) and served


@dataclass(frozen=True)
class Run:
    """A trace on real nodes."""

    trace: Trace
    service: Service
    recorder: Recorder
    running: Future[None]

    def wait(self, true: Callable[[], bool], what: str) -> None:
        """Wait until what the recorder has seen is so."""
        end_s = time.monotonic() + PATIENCE_S
        while not true():
            if self.running.done():
                self.running.result()
            last = self.recorder.journals[-1:]
            assert time.monotonic() < end_s, f"{what} was not reached: {last}"
            time.sleep(POLL_S / 2)

    def play(self) -> None:
        """Deploy, act at each moment, and wait for the end."""
        self.wait(lambda: self.recorder.settled, "the begin")
        since = self.service.state()["last"]
        with self.service.cli.start(*self._argv()) as deploy:
            for phase, act in self.trace.acts:
                self.wait(lambda phase=phase: self._phase is phase, phase)  # type: ignore[misc]
                self._act(act)
            self.wait(lambda: self._began and self.recorder.settled, "the end")
            deploy.communicate(timeout=PATIENCE_S)
        self.recorder.recording.events += self._events(since)

    def _argv(self) -> list[str]:
        trace = self.trace
        words = ["--mode", trace.mode, "--node", MACHINES[trace.node]]
        words += ["--allow-downtime"] if trace.mode is Mode.IN_PLACE else []
        words += [] if trace.automatic else ["--no-promote"]
        asks = any(phase is Phase.LOAD and isinstance(act, Ask) for phase, act in trace.acts)
        acts = any(phase is Phase.LOAD for phase, _ in trace.acts)
        knobs = {"START_S": "8" if asks else "3" if acts else "1"}  # a verb takes seconds on a busy host
        knobs |= {} if trace.answers else {"ANSWERS": "nonsense"}
        return self.service.argv(*words, name="new", swap__keep_old_s="0", **knobs)

    @property
    def _phase(self) -> Phase | None:
        swap = self.recorder.journals[-1].swap
        return swap.phase if swap else None

    @property
    def _began(self) -> bool:
        return any(journal.swap for journal in self.recorder.journals)

    @property
    def names(self) -> Naming:
        return names_of(self.recorder.journals, NODES)

    def _events(self, since: int) -> list[dict[str, Any]]:
        question = json.dumps({"op": "events", "format": SCHEMA, "service": self.service.name, "since": since}) + "\n"
        printed = self.service.nodes.node(GATEWAY).exec(*RELAY.split(), stdin=question.encode())
        return list(json.loads(printed)["ok"])

    def _act(self, act: Act) -> None:
        match act:
            case KillGuard(node=node):
                self.service.nodes.node(MACHINES[node]).kill_container("sparkops-guard")
            case KillEngine(role=role):
                rank = self._rank(role)
                self.service.nodes.node(rank.node).kill_container(rank.container)
            case StopByHand(role=role):
                rank = self._rank(role)
                self.service.nodes.node(rank.node).exec("docker", "stop", rank.container)
            case Ask(verb=verb):
                words = {"cancel": ("rollback",), "stop": ("stop", "--force")}.get(verb, (verb,))
                ran = self.service.cli(*words, self.service.name)
                assert ran.code == 0, ran.err

    def _rank(self, role: Role) -> RankSpec:
        swap = next(journal.swap for journal in self.recorder.journals if journal.swap)
        item = swap.target if role is Role.NEW else swap.source
        assert item
        return next(item.ranks)


@contextmanager
def recorded(trace: Trace, service: Service) -> Iterator[Run]:
    """A run whose recorder looks on."""
    recorder = Recorder(service)
    with ThreadPoolExecutor(1) as thread:
        run = Run(trace, service, recorder, thread.submit(recorder.run))
        try:
            yield run
        finally:
            recorder.over.set()


@pytest.mark.parametrize("trace", some((*TRACES, *MORE), *TRACES))
def test_real_nodes_report_what_the_simulation_does(stand_in: Service, trace: Trace) -> None:
    service = replace(stand_in, settings={**QUICK, **WARM}) if trace.keeps_old else stand_in
    service.begin(name="warm" if trace.keeps_old else "first")

    with recorded(trace, service) as run:
        run.play()

    recording, active = run.recorder.recording, run.recorder.journals[-1].active
    assert (run.names.releases[active.release] if active else None) is trace.serves, [
        event["text"] for event in recording.events
    ]
    assert differences(Play.of(trace).run().observed, recording.observed(run.names)) == [], recording.events
