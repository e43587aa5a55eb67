"""What one look at a starting container reads, in which order, and how much of its log."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sparkops.config.node import NodeConfig
from sparkops.errors import ConnectionLost
from sparkops.guard.follow.start_watch import LOG_LINES, StartMonitor
from sparkops.node.docker_api import Engine
from sparkops.node.local import LocalNode
from sparkops.node.member import Member
from sparkops.swap.model import Answer
from tests import examples
from tests.ports import free_port
from tests.serving.smoke.server import Player, to, whole

DAY_S = 86400.0
STAMP = "2026-11-20T{:02}:{:02}:{:02}.{}00000000Z"


class Docker:
    """Docker's API for a container whose log is as long as Docker keeps."""

    def __init__(self, lines: int = 600_000, *, hung: bool = False) -> None:
        self.lines, self.hung = lines, hung
        self.requests: list[str] = []

    def container(self, name: str) -> Any:
        """The inspect of a container. Raises ConnectionLost where that hangs."""
        self.requests.append(f"inspect {name}")
        if self.hung:
            raise ConnectionLost("n1", "the reply did not come within 20 s")
        return None

    def log(self, name: str, *, tail: int | None = None, **_: float) -> str:
        """The end of the log, or the whole."""
        self.requests.append(f"log {name}")
        numbers = range(self.lines)[-(tail or self.lines) :]
        return "".join(f"{STAMP.format(n // 36000, n // 600 % 60, n // 10 % 60, n % 10)} line {n}\n" for n in numbers)


def monitor(docker: Docker, port: int) -> StartMonitor:
    node = LocalNode("n1")
    member = Member("n1", NodeConfig(transport="local"), node, cast("Engine", docker))
    container = examples.container(examples.rank(), name="q-r0", state="running")
    return StartMonitor(member, container, to(port)(), -DAY_S)


def test_no_more_than_the_end_of_a_long_log_is_read() -> None:
    lines = list(monitor(Docker(), free_port())._new_lines())

    assert len(lines) == LOG_LINES
    assert lines[-1].text == "line 599999"


def test_a_young_log_is_read_whole_and_each_line_once() -> None:
    docker = Docker(lines=50)
    looks = monitor(docker, free_port())

    assert len(list(looks._new_lines())) == 50
    docker.lines = 52
    assert [line.text for line in looks._new_lines()] == ["line 50", "line 51"]


def test_health_is_known_although_docker_hangs() -> None:
    with Player(lambda connection, _: connection.sendall(whole("ok"))).up() as player:
        docker = Docker(hung=True)
        looks = monitor(docker, player.port)
        with pytest.raises(ConnectionLost):
            looks.sample()

    assert looks.health is Answer.YES
    assert docker.requests == ["inspect q-r0"]
