"""Faults of the first design that only real nodes show. Names are those of the reproductions."""

from __future__ import annotations

import pytest

from sparkops.swap.model import Phase
from tests.real.endings import at, good_end
from tests.real.service import Service, wait_for

pytestmark = pytest.mark.fleet

IN_PLACE = ("--mode", "in-place", "--allow-downtime", "--node", "node-2")


@pytest.mark.matrix
def test_p8_p8b_a_new_release_and_a_client_that_die_bring_the_old_release_back(service: Service) -> None:
    (old,) = service.running()
    with at(service, Phase.LOAD, *IN_PLACE, name="second", HANG_AT="40") as deploy:
        deploy.kill()
        (new,) = service.running()
        service.nodes.node(new.node).kill_container(new.name)
        restarted = wait_for(
            lambda: next((container for container in service.running() if container.name == old.name), None)
        )

    assert restarted.started_at != old.started_at
    assert good_end(service) == old.release
