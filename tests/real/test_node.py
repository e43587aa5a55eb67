"""A real node on loan: cordoned, drained under load, and returned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.service import Service, enough, nothing_failed, unused, wait_for

pytestmark = pytest.mark.fleet


@pytest.fixture
def lent(stand_in: Service) -> Iterator[Service]:
    """The stand-in on node-2, and both nodes open afterwards."""
    stand_in.anew("--node", "node-2", name=unused())
    yield stand_in
    for node in ("node-1", "node-2"):
        stand_in.cli("node", "uncordon", node)


def places(service: Service) -> set[str]:
    return {container.node for container in service.running()}


def cordon(service: Service, node: str) -> Any:
    """Why nothing starts on a node, as any client sees it."""
    rows = service.cli("status", "--json").json["nodes"]
    return next(row["cordon"] for row in rows if row["name"] == node)


@pytest.mark.matrix
def test_a_node_is_drained_and_returned_under_load_without_a_failed_request(lent: Service) -> None:
    with lent.load() as load:
        load.wait_for(50)
        drained = lent.cli("node", "drain", "node-2", "--message", "new driver", "--json")
        away, why = places(lent), cordon(lent, "node-2")
        again = lent.cli("node", "drain", "node-2", "--json")
        refused = lent.deploy("--node", "node-2", name=unused())
        load.wait_for(load.report().good + 50)
        back = lent.cli("node", "return", "node-2", "--json")
        load.wait_for(load.report().good + 50)
        wait_for(lambda: enough(load))

    assert (drained.code, [step["action"] for step in drained.json["services"]]) == (0, ["move"]), drained.err
    assert (away, again.code, again.json["services"]) == ({"node-1"}, 0, []), again.err
    assert why is not None
    assert why.startswith("new driver, by ")
    assert refused.code == 5, refused.err
    assert "across on node-2: cordoned: new driver, by " in refused.err
    assert back.code == 0, back.err
    assert (places(lent) >= {"node-2"}, cordon(lent, "node-2")) == (True, None)
    nothing_failed(load)


@pytest.mark.matrix
def test_a_drain_whose_client_was_killed_is_continued_by_the_next_one(lent: Service) -> None:
    with lent.load() as load:
        load.wait_for(50)
        with lent.cli.start("node", "drain", "node-2") as process:
            for line in process.stderr or ():
                if "started on" in line:
                    break
            process.kill()
        drained = lent.cli("node", "drain", "node-2", "--json")
        load.wait_for(load.report().good + 50)
        wait_for(lambda: enough(load))

    assert drained.code == 0, drained.err
    assert places(lent) == {"node-1"}
    nothing_failed(load)


def test_a_release_that_is_only_kept_warm_stops_with_the_drain_of_its_node(lent: Service) -> None:
    kept = lent.deploy("--node", "node-2", name=unused(), swap__keep_old_s="600")
    assert kept.code == 0, kept.err
    moved = lent.deploy("--node", "node-1", name=unused())
    assert (moved.code, places(lent)) == (0, {"node-1", "node-2"}), moved.err

    drained = lent.cli("node", "drain", "node-2", "--json")

    assert (drained.code, [step["action"] for step in drained.json["services"]]) == (0, ["stop the old release"])
    assert places(lent) == {"node-1"}


@pytest.mark.matrix
def test_what_fits_on_no_other_node_is_refused_with_the_arithmetic_and_stopped_on_request(lent: Service) -> None:
    closed = lent.cli("node", "cordon", "node-1")
    assert closed.code == 0, closed.err

    refused = lent.cli("node", "drain", "node-2")
    assert refused.code == 5, refused.err
    assert "across on node-1: cordoned: maintenance" in refused.err
    assert (places(lent), cordon(lent, "node-2")) == ({"node-2"}, None)

    stopped = lent.cli("node", "drain", "node-2", "--stop", "--json")
    assert (stopped.code, [step["action"] for step in stopped.json["services"]]) == (0, ["stop"]), stopped.err
    assert places(lent) == set()

    back = lent.cli("node", "return", "node-2", "--json")
    assert (back.code, [step["action"] for step in back.json["services"]]) == (0, ["start"]), back.err
    assert places(lent) == {"node-2"}
