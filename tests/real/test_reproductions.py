"""Faults of the first design that only real nodes show. Names are those of the reproductions."""

from __future__ import annotations

import time

import pytest

from sparkops.swap.model import Phase
from tests.real.endings import at, good_end
from tests.real.service import GATEWAY, Service, slowness, wait_for

pytestmark = pytest.mark.fleet

BEGINS_S = 60.0  # on a calm machine
IN_PLACE = ("--mode", "in-place", "--allow-downtime", "--node", "node-2")


def test_p8_p8b_a_new_release_and_a_client_that_die_bring_the_old_release_back(service: Service) -> None:
    (old,) = service.running()
    with at(service, Phase.LOAD, *IN_PLACE, name="second", HANG_AT="40") as deploy:
        deploy.kill()
        (new,) = service.running()
        died_s = time.time()  # all nodes are on this machine, so they share its clock
        service.nodes.node(new.node).kill_container(new.name)
        restarted = wait_for(
            lambda: next((container for container in service.running() if container.name == old.name), None)
        )
        slow = slowness(service.nodes.node(GATEWAY))

    took_s = restarted.started_at - died_s
    print(f"the old release began to start after {took_s:.1f} s; the machine is {slow:.1f} times as slow as a calm one")
    assert took_s < BEGINS_S * slow
    assert good_end(service) == old.release
