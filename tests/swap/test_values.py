"""Values of a swap parsed without pydantic are those that wire.py reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkops.names import Slot
from sparkops.swap import wire
from sparkops.swap.fleet_state import EngineReport, EngineState, GatewayView, Report
from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.model import Answer, Mode, RankSpec
from sparkops.swap.values import WireError, parse
from tests.swap.test_events import begun

JOURNALS = [Journal("chat", "n1"), *(begun(mode) for mode in Mode), begun(Mode.IN_PLACE).noted("i1", "done", hold="h")]
REPORT = Report("n1", "b", 1, 2, engines=(EngineReport("c", EngineState.LOADING, proven=Answer.YES, problem="x"),))
VIEW = GatewayView(Slot.BLUE, {Slot.BLUE: "r1"}, {Slot.BLUE: Answer.LATER}, {Slot.BLUE: 3})


@pytest.mark.parametrize(
    ("kind", "value"), [*((Journal, journal) for journal in JOURNALS), (Report, REPORT), (GatewayView, VIEW)]
)
def test_a_value_is_the_same_as_with_pydantic(kind: type[Any], value: Any) -> None:
    plain = json.loads(wire.dump(kind, value))

    assert parse(kind, plain) == wire.load_value(kind, plain)


def test_a_journal_of_a_stop_and_of_nodes_that_were_given_up_is_whole() -> None:
    journal = Journal("chat", "n1", without=frozenset({"n2"}), stopped=(RankSpec("n2", "c", 1.0),), stopping=True)

    assert parse(Journal, json.loads(wire.dump(Journal, journal))) == journal


@pytest.mark.parametrize(
    "change",
    [
        {"schema": SCHEMA + 1},
        {"service": 3},
        {"term": "1"},
        {"peers": "n2"},
        {"stopping": 1},
        {"active": {"release": "r1", "slot": "red", "replicas": []}},
        {"active": {"release": "r1", "slot": "blue", "replicas": []}},
        {"swap": []},
    ],
    ids=str,
)
def test_what_is_no_journal_of_this_version_is_refused(change: dict[str, Any]) -> None:
    plain = {**json.loads(wire.dump(Journal, JOURNALS[1])), **change}

    with pytest.raises(WireError, match=r"^Journal: "):
        parse(Journal, plain)


def test_a_journal_without_a_leader_is_refused_and_a_further_field_is_not() -> None:
    with pytest.raises(WireError, match="leader"):
        parse(Journal, {"service": "chat"})
    assert parse(Journal, {"service": "chat", "leader": "n1", "later": 1}) == Journal("chat", "n1")
