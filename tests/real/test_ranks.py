"""One replica over four nodes: two stages of two ranks come up as one, answer, are replaced, and end together.

With eight nodes, the next release comes up on the other four while requests run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from tests.fleet.fleet import Fleet
from tests.real import pairs
from tests.real.program import Cli
from tests.real.service import QUICK, Service, wait_for, write_inventory

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]  # it needs four nodes

ALL = ("node-1", "node-2", "node-3", "node-4")
OTHERS = ("node-5", "node-6", "node-7", "node-8")
SIZES = {"serve.tensor_parallel": "2", "serve.pipeline_parallel": "2", "serve.executor": "mp"}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The stand-in on four nodes, with a gateway on node-1 and plain TCP between the nodes."""
    yield from fleet_of(len(ALL), tmp_path_factory)


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The same with four more nodes."""
    yield from fleet_of(len(ALL) + len(OTHERS), tmp_path_factory)


def fleet_of(count: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The stand-in of four ranks on so many nodes."""
    nodes = Fleet.up(count)
    home = tmp_path_factory.mktemp("ranks")
    cli = Cli(write_inventory(nodes, home, pairs.fabric), home)
    built = cli("build", "stand-in", "--once", timeout=1800)
    assert built.code == 0, built.err
    service = Service(cli, nodes, settings={**QUICK, **SIZES})
    service.sweep()
    yield service
    service.sweep()


def says(service: Service) -> str:
    """The name of the release that answers a request through the gateway."""
    body = {"model": service.name, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    answer = requests.post(f"{service.url}/v1/chat/completions", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-stand-in"]


def test_four_ranks_come_up_as_one_and_the_next_release_takes_their_place(four: Service) -> None:
    first = four.deploy(*pairs.on(ALL), name="first")
    assert first.code == 0, (first.json, first.err)
    assert first.json["mode"] == "first"
    assert pairs.whole(four, str(first.json["release"]), ALL)
    [replica] = four.status()["replicas"]
    assert [(rank["node"], rank["rank"]) for rank in replica["ranks"]] == [*zip(ALL, range(4), strict=True)]
    assert says(four) == "first"

    following = four.deploy(*pairs.on(ALL), name="second")
    assert following.code == 0, (following.json, following.err)
    assert following.json["mode"] == "beside"
    assert says(four) == "second"


def test_the_end_of_one_rank_ends_its_attempt_on_all_nodes_and_all_start_anew(four: Service) -> None:
    active = four.journal().active
    assert active
    [before], [last] = attempts(four, active.release), [rank for rank in active.ranks if rank.container.endswith("-r3")]

    four.nodes.node(last.node).kill_container(last.container)

    wait_for(lambda: before not in attempts(four, active.release), 60)
    wait_for(lambda: answers(four), 180)


@pytest.mark.timeout(1800)
def test_four_ranks_on_other_nodes_take_over_under_load(eight: Service) -> None:
    eight.sweep()
    first = eight.deploy(*pairs.on(ALL), name="first")
    assert first.code == 0, (first.json, first.err)
    for names, name in ((OTHERS, "second"), (ALL, "third")):
        with eight.load(rate=20, streams=4) as load:
            load.wait_for(40)
            ran = eight.deploy(*pairs.on(names), name=name)
            load.wait_for(40)
            report = load.report()

        print(report)
        assert (ran.code, ran.json["mode"]) == (0, "across"), (ran.json, ran.err)
        assert report.clean, report
        assert pairs.whole(eight, str(ran.json["release"]), names)
        assert says(eight) == name


def attempts(service: Service, release: str) -> set[str]:
    """The attempts to start a release of which a rank runs."""
    return {container.generation for container in service.running() if container.release == release}


def answers(service: Service) -> bool:
    """Whether the release answers through the gateway."""
    try:
        return says(service) == "second"
    except (AssertionError, requests.RequestException):
        return False
