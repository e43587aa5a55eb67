"""Two copies of a service on two nodes: one after another is replaced under load, added, taken away, lost and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import requests

from tests.real.program import Cli
from tests.real.service import QUICK, Service, wait_for

pytestmark = pytest.mark.fleet

BOTH = ("--node", "node-1", "--node", "node-2")


@pytest.fixture(scope="module")
def service(front: Cli, nodes: object) -> Iterator[Service]:
    """The stand-in, whose recipe asks for two replicas."""
    service = Service(front, nodes, settings={**QUICK, "serve.replicas": "2"})  # type: ignore[arg-type]
    service.sweep()
    yield service
    service.sweep()


@pytest.fixture
def two(service: Service) -> Service:
    """Two replicas of one release serve."""
    if served_by(service) != {"first"} or len(replicas(service)) != 2:
        service.sweep()
        first = service.deploy(*BOTH, name="first")
        assert (first.code, first.json["mode"]) == (0, "first"), first.err
    return service


def replicas(service: Service) -> dict[str, str]:
    """The release of each replica that should serve, by node."""
    active = service.journal().active
    return {rank.node: rank.container.rsplit("-", 2)[0] for rank in active.heads} if active else {}


def served_by(service: Service, requests_: int = 8) -> set[str]:
    """The names of the releases that answer through the gateway; none where nothing does."""
    body = {"model": service.name, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    names = Counter[str]()
    for _ in range(requests_):
        try:
            answer = requests.post(f"{service.url}/v1/chat/completions", json=body, timeout=30)
        except requests.RequestException:
            return set()
        names[answer.headers.get("x-stand-in", "")] += 1
    return set(names)


def servers(service: Service) -> int:
    """The number of replicas that the gateway sends requests to."""
    active = service.traffic().active
    return len(active.serving) - len(active.down) if active else 0


@pytest.mark.timeout(900)
def test_replicas_are_replaced_under_load_and_no_request_fails(two: Service) -> None:
    with two.load() as load:
        load.wait_for(40)
        ran = two.deploy(*BOTH, "--mode", "rolling", name="second")
        load.wait_for(40)
        report = load.report()

    assert ran.code == 0, (ran.json, ran.err)
    assert ran.json["mode"] == "rolling"
    assert report.clean, report
    assert served_by(two) == {"second"}
    assert {*replicas(two)} == {"node-1", "node-2"}
    assert len({*replicas(two).values()}) == 1
    assert servers(two) == 2


@pytest.mark.timeout(900)
def test_a_bad_release_stops_at_the_first_replica(two: Service) -> None:
    before = replicas(two)
    with two.load() as load:
        load.wait_for(40)
        ran = two.deploy(*BOTH, "--mode", "rolling", name="bad", ANSWERS="nonsense")
        load.wait_for(20)
        report = load.report()

    assert ran.code == 1, (ran.json, ran.err)
    assert report.clean, report
    assert replicas(two) == before
    assert "bad" not in served_by(two)
    started = [event for event in two.events() if event["kind"] == "phase" and event.get("phase") == "start"]
    assert started
    wait_for(lambda: servers(two) == 2, 60)


@pytest.mark.timeout(900)
def test_a_replica_goes_and_comes_while_the_other_is_untouched(two: Service) -> None:
    kept = {container.node: container.started_at for container in two.running()}
    with two.load() as load:
        load.wait_for(40)
        fewer = two.deploy("--node", "node-1", "--replicas", "1", name="first")
        assert fewer.code == 0, (fewer.json, fewer.err)
        assert {*replicas(two)} == {"node-1"}
        more = two.deploy(*BOTH, name="first")
        assert more.code == 0, (more.json, more.err)
        report = load.report()

    assert report.clean, report
    assert {*replicas(two)} == {"node-1", "node-2"}
    assert next(container.started_at for container in two.running() if container.node == "node-1") == kept["node-1"]


@pytest.mark.timeout(900)
def test_the_service_is_up_while_one_replica_answers(two: Service) -> None:
    [victim] = [container for container in two.running() if container.node == "node-2"]
    two.nodes.node("node-2").kill_container(victim.name)

    assert "" not in served_by(two, 20)
    assert two.status()["state"] in ("degraded", "healthy")
    wait_for(lambda: len(two.running()) == 2 and servers(two) == 2, 120)
    assert two.journal().trouble == ""
