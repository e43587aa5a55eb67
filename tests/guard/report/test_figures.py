"""What a guard takes from its parts for a scrape."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkops.guard.disk.state import State
from sparkops.guard.lead.lead import Lead
from sparkops.guard.report import figures
from sparkops.guard.report.figures import Figures
from sparkops.swap.fleet_state import FleetState
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Mode
from tests.fleet_unit.machine import inspect
from tests.operator.deploy.states import deployed, reported, serving

pytestmark = pytest.mark.unit
ACTIVE = serving().journal


def offline() -> Journal:
    """The journal of a swap in place that has taken the traffic away."""
    journal = ACTIVE.begun("i2", Mode.IN_PLACE, deployed(), automatic=True)
    while journal.swap and not journal.swap.offline:
        journal = journal.advanced()
    return journal


@pytest.mark.parametrize(
    ("journal", "expected"),
    [(ACTIVE, Answer.NO), (replace(ACTIVE, stopping=True), Answer.UNKNOWN), (offline(), Answer.UNKNOWN)],
    ids=["active", "stopping", "offline in a swap"],
)
def test_a_service_without_traffic_by_intent_is_not_one_that_does_not_answer(
    journal: Journal, expected: Answer, tmp_path: Path
) -> None:
    front: Any = None
    lead = Lead(journal, State(tmp_path), front, dict, frozenset, print)
    lead.fleet = FleetState(gateway=reported(journal, Answer.NO).gateway)

    assert journal.active
    assert figures._service(lead).answers is expected


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ({"first": {"a": 1.0}, "second": {"a": 2.0}}, {"a": 2.0}),
        ({"first": {"a": 1.0}}, {"a": 1.0}),
        ({"first": {"a": 1.0}, "second": {}}, {}),
        ({}, None),
    ],
    ids=["two samples", "one", "the newest has no metrics", "no answer"],
)
def test_an_engine_whose_metrics_fail_has_no_figures_of_earlier(sample: dict[str, Any], expected: object) -> None:
    leadership: Any = SimpleNamespace(node=SimpleNamespace(name="n1"))
    sampler: Any = None
    labels = {"sparkops.service": "chat", "sparkops.release": "q-1", "sparkops.slot": "blue"}
    facts = inspect("sparkops-chat-blue", labels, "running")

    assert Figures(leadership, sampler, lambda: None)._engine(facts, sample).sums == expected


@dataclass
class SlowSampler:
    """A sampler whose Docker hangs while `open_` is not set; `reads` counts what was begun."""

    open_: threading.Event = field(default_factory=threading.Event)
    reads: int = 0
    error: Exception | None = None

    def engines(self) -> tuple[list[Any], list[Any], dict[str, Any]]:
        self.reads += 1
        self.open_.wait(60.0)
        if self.error:
            raise self.error
        return [], [], {"code": 0}


def hanging(sampler: SlowSampler, wait_s: float = 0.05) -> Figures:
    reach = SimpleNamespace(links=(), lost={}, last={})
    leadership: Any = SimpleNamespace(
        node=SimpleNamespace(name="n1"), members=SimpleNamespace(leads=True, reach=reach), led=tuple
    )
    slow: Any = sampler
    return Figures(leadership, slow, lambda: None, wait_s=wait_s)


def value(text: bytes, name: str) -> float | None:
    lines = (line.split() for line in text.decode().splitlines())
    return next((float(words[1]) for words in lines if words and words[0] == name), None)


def test_while_docker_hangs_scrapes_get_the_last_figures_and_the_time_of_their_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(figures, "KEPT_S", 0.0)
    sampler = SlowSampler()
    sampler.open_.set()
    served = hanging(sampler, wait_s=60.0)
    before = served.text()
    sampler.open_.clear()
    served.wait_s = 0.05
    late = [served.text() for _ in range(3)]

    assert [value(before, name) for name in ("sparkops_docker_up", "sparkops_guard_leads")] == [1.0, 1.0]
    assert value(before, "sparkops_guard_read_time_seconds") is not None
    for text in late:
        assert value(text, "sparkops_docker_up") == 0.0
        assert value(text, "sparkops_guard_leads") == 1.0
        assert value(text, "sparkops_guard_read_time_seconds") == value(before, "sparkops_guard_read_time_seconds")
    assert sampler.reads == 2, "a read that hangs is the only one"

    sampler.open_.set()
    served.wait_s = 60.0
    assert value(served.text(), "sparkops_docker_up") == 1.0


def test_a_guard_whose_docker_hangs_from_its_start_serves_what_it_knows() -> None:
    sampler = SlowSampler()
    text = hanging(sampler).text()
    sampler.open_.set()

    assert (value(text, "sparkops_docker_up"), value(text, "sparkops_guard_leads")) == (0.0, 1.0)
    assert value(text, "sparkops_guard_read_time_seconds") is None


def test_a_read_that_fails_is_an_error_and_the_next_scrape_reads_again() -> None:
    sampler = SlowSampler(error=OSError("no disk"))
    sampler.open_.set()
    served = hanging(sampler, wait_s=60.0)

    with pytest.raises(OSError, match="no disk"):
        served.text()
    sampler.error = None
    assert value(served.text(), "sparkops_docker_up") == 1.0


def test_a_read_for_which_no_thread_can_be_started_is_begun_by_the_next_scrape() -> None:
    sampler = SlowSampler()
    sampler.open_.set()
    served = hanging(sampler, wait_s=60.0)
    before = threading.stack_size(2**46)
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            served.text()
    finally:
        threading.stack_size(before)

    assert served._reading is None
    assert value(served.text(), "sparkops_docker_up") == 1.0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_a_read_that_nobody_expected_to_fail_old_figures_are_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "KEPT_S", 0.0)
    sampler = SlowSampler()
    sampler.open_.set()
    served = hanging(sampler, wait_s=60.0)
    served.text()
    sampler.error = KeyError("Config")

    with pytest.raises(OSError, match="cannot be read"):
        served.text()
    for thread in threading.enumerate():
        if thread.name == "figures":
            thread.join()  # its error is this test's; a later test would be blamed for it
    sampler.error = None
    assert value(served.text(), "sparkops_docker_up") == 1.0
