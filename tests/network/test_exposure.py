"""Which ports of engines only the gateway reaches, and what doctor finds open."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from sparkops.docker.facts import Container
from sparkops.network import exposure
from sparkops.network.finding import Severity
from tests.examples import container, rank

GATEWAY = ("10.0.0.1",)


def engine(**changes: Any) -> Container:
    return container(rank(), **changes)


def test_only_ports_with_a_label_are_closed() -> None:
    assert exposure.restricted([engine()]) == {}
    assert exposure.restricted([engine(callers=GATEWAY)]) == {8001: GATEWAY}
    assert exposure.restricted([engine(callers=())]) == {8001: ()}


def test_a_rank_that_answers_no_requests_has_no_port() -> None:
    assert exposure.restricted([engine(callers=GATEWAY, rank=1)]) == {}


def test_a_port_belongs_to_the_container_that_runs_else_to_the_newest() -> None:
    stopped = {"state": "exited", "restart_policy": "no"}

    assert exposure.restricted([engine(callers=GATEWAY, **stopped), engine()]) == {}
    assert exposure.restricted([engine(**stopped), engine(callers=GATEWAY)]) == {8001: GATEWAY}
    newest_first = [engine(callers=GATEWAY, state="created"), engine(**stopped)]
    assert exposure.restricted(newest_first) == {8001: GATEWAY}


def test_the_firewall_follows_every_rank_that_is_there_running_or_not() -> None:
    pair = {"peers": ("10.0.0.1", "10.0.0.2"), "meeting_port": 8003, "ssh_port": 22, "state": "exited"}

    wall = exposure.firewall([engine(**pair), engine(slot="green", port=9002)])

    assert wall.peers == {"10.0.0.1", "10.0.0.2"}
    assert wall.meeting_ports == {8003}
    assert wall.open_ports == {22, 8000, 8001, 9000, 9002}
    assert exposure.firewall([engine()]).peers == frozenset()


PAIR: dict[str, Any] = {"peers": ("10.0.0.1", "10.0.0.2"), "ssh_port": 22, "meeting_port": 8003}


@pytest.mark.parametrize(
    ("pair", "other"),
    [({}, {"port": 8004}), ({"state": "created"}, {"port": 8004}), ({}, {"port": 8003, "state": "exited"})],
    ids=["the gateway's port of another service", "before the start", "an engine that has ended"],
)
def test_the_port_where_ranks_meet_is_open_for_no_other_service(pair: dict[str, Any], other: dict[str, Any]) -> None:
    wall = exposure.firewall([engine(**PAIR, **pair), engine(name="other", **other)])

    assert 8003 in wall.meeting_ports - wall.open_ports


def test_a_service_keeps_its_port_where_no_rank_listens_on_it() -> None:
    stopped, elsewhere = engine(**PAIR, state="exited"), engine(**PAIR, rank=1)

    assert 8003 in exposure.firewall([stopped, engine(name="other", port=8003)]).open_ports
    assert 8003 in exposure.firewall([elsewhere, engine(name="other", port=8004)]).open_ports


@pytest.mark.parametrize(
    ("changes", "filtered", "code"),
    [
        ({}, None, "ENGINE_OPEN"),
        ({"callers": ()}, None, "ENGINE_OPEN"),
        ({"callers": GATEWAY}, None, "FILTER_UNKNOWN"),
        ({"callers": GATEWAY}, (), "FILTER_MISSING"),
        ({"callers": GATEWAY}, (8002,), "FILTER_MISSING"),
    ],
)
def test_an_engine_that_others_may_reach_is_a_warning(
    changes: dict[str, Any], filtered: Collection[int] | None, code: str
) -> None:
    (finding,) = exposure.findings("n1", [engine(**changes)], {8001}, filtered)

    assert (finding.code, finding.node, finding.severity) == (code, "n1", Severity.WARNING)
    assert "8001" in finding.problem


@pytest.mark.parametrize(
    ("changes", "open_ports"),
    [({"callers": GATEWAY}, {8001}), ({}, {22}), ({"state": "exited"}, {8001}), ({"rank": 1}, {8001})],
    ids=["closed by a rule", "on loopback", "stopped", "no port of its own"],
)
def test_what_only_the_gateway_reaches_is_no_finding(changes: dict[str, Any], open_ports: set[int]) -> None:
    assert [*exposure.findings("n1", [engine(**changes)], open_ports, {8001})] == []


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("filtered", "code"), [(None, "FILTER_UNKNOWN"), ({8001}, "FILTER_MISSING")])
def test_ranks_that_others_may_reach_are_a_warning(rank: int, filtered: set[int] | None, code: str) -> None:
    (finding,) = exposure.rank_findings("n1", [engine(**PAIR, rank=rank)], filtered)

    assert (finding.code, finding.node, finding.severity) == (code, "n1", Severity.WARNING)
    assert "ports between ranks of q-" in finding.problem


@pytest.mark.parametrize(
    ("changes", "filtered"),
    [(PAIR, {8003}), ({**PAIR, "state": "exited"}, set()), ({}, None)],
    ids=["closed by a rule", "stopped", "on one node"],
)
def test_ranks_that_no_other_reaches_are_no_finding(changes: dict[str, Any], filtered: set[int] | None) -> None:
    assert [*exposure.rank_findings("n1", [engine(**changes)], filtered)] == []


def test_a_gateway_that_has_moved_may_connect_beside_the_one_that_an_engine_was_created_for() -> None:
    guarded, alone = engine(callers=GATEWAY, port=9101), engine(name="alone", callers=(), port=9103)

    made = exposure.firewall([guarded, alone], ("10.0.0.2",))

    assert made.callers == {9101: ("10.0.0.1", "10.0.0.2"), 9103: ()}
