"""What a guard takes from its parts for a scrape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkops.guard import figures
from sparkops.guard.figures import Figures
from sparkops.guard.lead import Lead
from sparkops.guard.state import State
from sparkops.swap.fleet_state import FleetState
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Mode
from tests.deploy.states import deployed, reported, serving
from tests.fleet_unit.machine import inspect

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
