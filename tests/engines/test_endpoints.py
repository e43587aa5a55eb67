"""The looks at /health and /metrics."""

from __future__ import annotations

from sparkops.engines import endpoints
from sparkops.swap.model import Answer
from tests.ports import free_port
from tests.serving.smoke.server import Player, to, whole


def test_health_and_metrics_of_a_server_and_of_none() -> None:
    with Player(lambda connection, _: connection.sendall(whole("up 1"))).up() as player, to(player.port)() as asking:
        assert (endpoints.health(asking), endpoints.metrics_page(asking)) == (Answer.YES, "up 1")
    with to(free_port())() as asking:
        assert (endpoints.health(asking), endpoints.metrics_page(asking)) == (Answer.NO, None)
