"""The disk of the gateway's node is full in a phase of an in-place swap, under load: it ends well once there is space.

Guard and gateway keep their files on small disks meanwhile, in memory: a full disk of the whole machine would stop the
other tests as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from sparkops.gateway.commands import VOLUME as GATEWAY_VOLUME
from sparkops.node.agents.commands import VOLUME as GUARD_VOLUME
from sparkops.swap.model import PHASES, Mode, Phase
from tests.fleet.node import FleetNode
from tests.real.cases import Moment, some
from tests.real.endings import at, good_end
from tests.real.service import GATEWAY, PATIENCE_S, Service, unused, wait_for

pytestmark = pytest.mark.fleet

FULL_S = 15.0
"""How long the disk is full: past the time in which each step of an in-place swap of the stand-in is done."""
SIZES_MIB = {GUARD_VOLUME: 64, GATEWAY_VOLUME: 4}
AGENTS = {GUARD_VOLUME: "sparkops-guard", GATEWAY_VOLUME: "sparkops-gateway"}
MOMENTS = [Moment(Mode.IN_PLACE, phase) for phase in PHASES[Mode.IN_PLACE] if phase is not Phase.WORKERS]


def place(volume: str) -> str:
    return f"/var/lib/docker/volumes/{volume}/_data"


@contextmanager
def on_small_disk(node: FleetNode, volume: str) -> Iterator[None]:
    """Let the agent of a volume keep its files on a disk of its own."""
    directory, agent, kept = place(volume), AGENTS[volume], f"/tmp/kept-{volume}"
    mount = f"mount -t tmpfs -o size={SIZES_MIB[volume]}m none {directory}"
    attributes = f"chown --reference={kept} {directory}; chmod --reference={kept} {directory}"
    node.exec("docker", "stop", agent)
    node.exec("sh", "-ec", f"cp -a {directory} {kept}; {mount}; cp -a {kept}/. {directory}; {attributes}")
    node.exec("docker", "start", agent)
    try:
        yield
    finally:
        node.exec("docker", "stop", agent)
        node.exec("sh", "-ec", f"rm -r {kept}; cp -a {directory} {kept}; umount {directory}")
        node.exec("sh", "-ec", f"find {directory} -mindepth 1 -delete; cp -a {kept}/. {directory}; rm -r {kept}")
        node.exec("docker", "start", agent)


@contextmanager
def full(node: FleetNode) -> Iterator[None]:
    """Both disks are full meanwhile."""
    for volume in SIZES_MIB:
        node.exec("sh", "-c", f"cat /dev/zero >{place(volume)}/filling 2>/dev/null || true")
    try:
        yield
    finally:
        for volume in SIZES_MIB:
            node.exec("rm", f"{place(volume)}/filling")


@pytest.fixture
def small_disks(stand_in: Service) -> Iterator[Service]:
    """The service on node-2, with guard and gateway of node-1 on small disks."""
    stand_in.begin(name="", node="node-2")
    with ExitStack() as opened:
        for volume in SIZES_MIB:
            opened.enter_context(on_small_disk(stand_in.nodes.node(GATEWAY), volume))
        wait_for(lambda: stand_in.cli("status", "--json").code == 0)
        yield stand_in


@pytest.mark.parametrize("moment", some(MOMENTS))
def test_a_full_disk_of_the_gateways_node_delays_a_swap_and_loses_nothing(small_disks: Service, moment: Moment) -> None:
    with small_disks.load(rate=10, streams=2) as load:
        load.wait_for(20)
        with at(small_disks, moment.phase, *moment.argv, name=unused()) as deploy:
            with full(small_disks.nodes.node(GATEWAY)):
                if moment.phase.order >= Phase.VERIFY.order:  # what follows is written over what is there
                    deploy.wait(PATIENCE_S)
                else:
                    time.sleep(FULL_S)
            _, err = deploy.communicate(timeout=PATIENCE_S)
            live = good_end(small_disks)
        load.wait_for(load.report().good + 20)

    assert deploy.returncode in (0, 6), err
    assert deploy.returncode == 6 or live == small_disks.status()["live"]["release"]
    assert load.report().failures == {}, load.report()
