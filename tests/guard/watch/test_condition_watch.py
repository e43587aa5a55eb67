"""What a guard takes from its parts for the states that operators are told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkops.errors import SparkopsError
from sparkops.guard.disk.state import Membership, State
from sparkops.guard.lead.lead import Lead
from sparkops.guard.lead.leadership import Leadership
from sparkops.guard.watch.condition_watch import CONDITIONS_S, HOST_S, ConditionWatch
from sparkops.node.host import HostFacts
from sparkops.swap import catalogue
from sparkops.swap.catalogue import CATALOGUE, DISK_LOW_GIB, Code, Notice
from sparkops.swap.fleet_state import FleetState
from sparkops.swap.follower import Record
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer
from tests.examples import HOST
from tests.operator.deploy.states import reported, serving

pytestmark = pytest.mark.unit
ACTIVE = serving().journal
LONGEST_S = max(entry.after_s for entry in CATALOGUE.values())


@dataclass
class Guard:
    """A guard whose parts are as a test says."""

    directory: Path
    leads: bool = True
    now_s: float = 1000.0
    message_s: float | None = None
    host: HostFacts | None = HOST
    reads: int = 0
    lost: dict[str, str] = field(default_factory=dict)
    last: dict[str, object] = field(default_factory=lambda: {"n2": object()})
    told: list[Notice] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = State(self.directory)
        self.state.listeners.append(self.told.append)
        self.state.write_membership(Membership("n1" if self.leads else "n2", b"k"))
        front: Any = None
        self.lead = Lead(ACTIVE, self.state, front, dict, frozenset, lambda _: None)
        self.answer(Answer.YES)
        reach = SimpleNamespace(links=[SimpleNamespace(node="n2")], lost=self.lost, last=self.last)
        leadership: Any = SimpleNamespace(
            state=self.state,
            log=self.lines.append,
            node=SimpleNamespace(name="n1"),
            members=SimpleNamespace(leads=self.leads, reach=reach),
            leads={"chat": self.lead},
            _known_term=lambda service: Leadership._known_term(leadership, service),
            led=lambda: Leadership.led(leadership),
        )
        self.watch = ConditionWatch(leadership, lambda: self.message_s, self.read, lambda: self.now_s)

    def read(self) -> HostFacts | None:
        self.reads += 1
        return self.host

    def answer(self, answer: Answer, journal: Journal = ACTIVE) -> None:
        self.lead.journal = journal
        self.lead.fleet = replace(FleetState(), gateway=reported(ACTIVE, answer).gateway, contacts=frozenset({"n2"}))

    def after(self, seconds: float = LONGEST_S) -> list[str]:
        """Look until so many seconds have passed; return what was told."""
        before = len(self.told)
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s = min(until_s, self.now_s + CONDITIONS_S)
            self.watch.look()
        return [f"{item.code} {item.subject or item.service} {item.state}" for item in self.told[before:]]


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    return Guard(tmp_path)


def test_nothing_is_told_while_all_is_well(guard: Guard) -> None:
    assert guard.after(3 * LONGEST_S) == []


def test_a_node_that_the_leader_does_not_reach(guard: Guard) -> None:
    guard.lost["n2"] = "no reply"
    assert guard.after(CATALOGUE[Code.NODE_LOST].after_s) == []
    assert guard.after(CONDITIONS_S) == ["NODE_LOST n2 begins"]
    assert guard.after() == []

    guard.lost.clear()
    assert guard.after() == ["NODE_LOST n2 ends"]
    assert guard.lines == [f"{text}n2: its guard cannot be reached: no reply" for text in ("", "ended: ")]


def test_a_node_that_was_not_reached_yet_is_unknown(guard: Guard) -> None:
    guard.last.clear()

    assert guard.after() == []


def test_a_release_that_does_not_answer_and_a_gateway_that_cannot_be_read(guard: Guard) -> None:
    guard.answer(Answer.NO)
    assert guard.after() == ["NOT_ANSWERING chat begins"]
    guard.answer(Answer.UNKNOWN)
    assert guard.after() == []

    guard.lead.fleet = replace(guard.lead.fleet, gateway=None)
    assert "GATEWAY_DOWN n1 begins" in guard.after()
    guard.answer(Answer.YES)
    assert {"NOT_ANSWERING chat ends", "GATEWAY_DOWN n1 ends"} <= set(guard.after())


def test_a_service_that_is_stopped_by_intent_is_not_one_that_does_not_answer(guard: Guard) -> None:
    guard.answer(Answer.NO, replace(ACTIVE, stopping=True))

    assert guard.after() == []


def test_a_service_that_needs_an_operator(guard: Guard) -> None:
    guard.lead.frozen = "Traceback: a bug"
    assert guard.after() == ["NEEDS_OPERATOR chat begins"]
    assert guard.told[0].next_step.startswith("docker restart sparkops-guard, on ")

    guard.lead.frozen = ""
    assert guard.after() == ["NEEDS_OPERATOR chat ends"]
    history = [catalogue.of_event("chat", event) for event in guard.state.events("chat")]
    assert history == guard.told, "each state of a service is in its history"


def test_a_disk_that_is_nearly_full_is_read_once_a_minute(guard: Guard) -> None:
    guard.host = replace(HOST, disk_free_gib=DISK_LOW_GIB - 0.1)
    assert guard.after(10 * HOST_S + CONDITIONS_S) == ["DISK_LOW n1 begins"]
    assert guard.reads == 11

    guard.host = None
    assert guard.after() == []
    guard.host = replace(HOST, disk_free_gib=DISK_LOW_GIB)
    assert guard.after() == ["DISK_LOW n1 ends"]


@pytest.mark.parametrize("message_s", [None, 1000.0], ids=["none yet", "then no more"])
def test_a_guard_without_messages_of_its_leader(tmp_path: Path, message_s: float | None) -> None:
    guard = Guard(tmp_path, leads=False, message_s=message_s)
    assert guard.after(CATALOGUE[Code.LEADER_LOST].after_s) == []
    assert guard.after(3 * CONDITIONS_S) == ["LEADER_LOST n1 begins"]

    guard.message_s = guard.now_s
    assert guard.after(CONDITIONS_S) == ["LEADER_LOST n1 ends"]


def test_where_it_is_unknown_who_leads_nothing_ends(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    guard.lost["n2"] = "no reply"
    guard.after()

    def unreadable(_: State) -> Membership:
        raise SparkopsError("unreadable")

    with monkeypatch.context() as patched:
        patched.setattr(State, "membership", unreadable)
        assert guard.after() == []
    guard.lost.clear()
    assert guard.after() == ["NODE_LOST n2 ends"]


@pytest.mark.parametrize("newer", [Record(term=ACTIVE.term + 1), Record(copy=replace(ACTIVE, term=ACTIVE.term + 1))])
def test_a_former_leader_tells_nothing_of_services_that_another_one_leads(guard: Guard, newer: Record) -> None:
    guard.lead.frozen = "Traceback: a bug"
    assert guard.after() == ["NEEDS_OPERATOR chat begins"]
    guard.state.write_record("chat", newer)

    assert guard.after() == ["NEEDS_OPERATOR chat ends"]


def test_a_guard_that_follows_tells_nothing_of_the_services_that_it_led(tmp_path: Path) -> None:
    guard = Guard(tmp_path, leads=False)
    guard.lead.frozen, guard.lead.fleet = "Traceback: a bug", FleetState()

    assert guard.after() == ["LEADER_LOST n1 begins"]


def test_a_gateway_that_cannot_be_read_matters_to_no_forgotten_service(guard: Guard) -> None:
    guard.lead.journal, guard.lead.fleet = replace(ACTIVE, forgotten=True), FleetState()

    assert guard.after() == []
