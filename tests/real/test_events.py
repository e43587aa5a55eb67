"""Events that an operator must know, from real guards to a receiver on this machine, and in the history."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest

from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.http_server import Answer, Asked, HttpServer, answering
from tests.real.program import Cli
from tests.real.service import GATEWAY, Service, wait_for, write_inventory

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]

PATH = "/hooks/T0K3N"


class Receiver:
    """A receiver that can be out of order."""

    def __init__(self, server: HttpServer, works: list[bool]) -> None:
        self.server, self.works = server, works

    def codes(self) -> list[str]:
        """Return code and state of the events of the stand-in, each once."""
        events = {asked.json["id"]: asked.json for asked in tuple(self.server.requests) if asked.json["service"]}
        return [f"{event['code']} {event['state']}" for event in events.values()]


@pytest.fixture
def receiver(nodes: RealFleet) -> Iterator[Receiver]:
    works = [True]

    def respond(_: Asked) -> Answer:
        return Answer(200 if works[0] else 503)

    with answering(respond, receiver_address(nodes)) as server:
        yield Receiver(server, works)


@pytest.fixture
def told(front: Cli, nodes: RealFleet, receiver: Receiver, tmp_path: Path) -> Iterator[Service]:
    """The stand-in in a fleet with `webhook`."""
    url = f"http://{receiver_address(nodes)}:{receiver.server.port}{PATH}"
    file = write_inventory(nodes, tmp_path, lambda data: data.update({"webhook": {"urls": [url]}}))
    service = Service(Cli(file, tmp_path / "state", env={"PYTHONPATH": str(CHECKOUT)}), nodes)
    service.sweep()
    yield service
    service.sweep()
    assert Service(front, nodes).deploy("--node", "node-2", name="first").code == 0  # takes the receiver away


def receiver_address(nodes: RealFleet) -> str:
    """Return the address of this machine, as nodes reach it."""
    return str(next(ip_network(f"{nodes.node(GATEWAY).address}/24", strict=False).hosts()))


def test_events_arrive_and_those_of_the_time_when_the_receiver_was_away_are_in_the_history(
    told: Service, receiver: Receiver, nodes: RealFleet
) -> None:
    ran = told.deploy("--node", GATEWAY, name="first")
    assert ran.code == 0, ran.err
    wait_for(lambda: receiver.codes() == ["PROMOTED once"])

    receiver.works[0] = False
    assert told.cli("hold", told.name, "--message", "a benchmark").code == 0
    wait_for(lambda: "HOLD begins" in receiver.codes())
    nodes.node(GATEWAY).exec("docker", "restart", "sparkops-guard")
    receiver.server.requests.clear()
    receiver.works[0] = True
    assert told.cli("hold", told.name, "--off").code == 0
    wait_for(lambda: receiver.codes() == ["HOLD ends"])

    shown = told.cli("history").out
    assert [code in shown for code in ("PROMOTED", "HOLD begins", "HOLD ends")] == [True] * 3
    for node in nodes.nodes:
        seen = node.exec("sh", "-c", "docker inspect sparkops-guard; docker logs sparkops-guard 2>&1; ps -ef")
        assert "T0K3N" not in seen
