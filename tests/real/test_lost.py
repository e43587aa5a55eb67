"""A node, its Docker, its gateway or the way to it is lost in the middle of a swap, and no person is needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from sparkops.plan.journal import Mode, Phase
from tests.fleet.node import FleetNode
from tests.real.cases import Moment, some
from tests.real.endings import at, good_end, pass_by, past_deadline_s
from tests.real.service import GATEWAY, Service

pytestmark = pytest.mark.fleet

SSH = ("-p", "tcp", "-j", "DROP")
FOR_GOOD_S = 100.0  # a connection that has died in silence is noticed after a minute


def docker_dies(node: FleetNode) -> None:
    """Its containers live on until the next one starts, which stops them."""
    node.kill_engine()
    time.sleep(1)
    node.start_engine()


def power_fails(node: FleetNode) -> None:
    """The node starts again at once."""
    node.reboot(graceful=False)


def haproxy_dies(node: FleetNode) -> None:
    """Docker starts its container again."""
    node.exec("sh", "-c", "kill -KILL $(docker inspect --format '{{.State.Pid}}' sparkops-gateway)")


def connections_end(node: FleetNode) -> None:
    """Every session of sshd ends at once; in a last phase they may just have ended by themselves."""
    node.exec("sh", "-c", "kill -KILL $(ps --no-headers -o pid --ppid $(cat /run/sshd.pid)) || true")


def connections_fall_silent(node: FleetNode) -> None:
    """Nobody reaches sshd for a while, and nobody is told."""
    for chain, way in (("PREROUTING", "--dport"), ("POSTROUTING", "--sport")):
        node.exec("iptables", "-w", "-t", "mangle", "-A", chain, "-p", "tcp", way, "22", "-j", "DROP")
    time.sleep(FOR_GOOD_S)
    node.heal()


FAULTS: tuple[Callable[[FleetNode], None], ...] = (
    docker_dies,
    power_fails,
    haproxy_dies,
    connections_end,
    connections_fall_silent,
)
PHASES = (Phase.START, Phase.LOAD, Phase.VERIFY, Phase.SWITCH, Phase.BAKE, Phase.PROMOTE, Phase.DRAIN)
IN_PLACE = (Phase.QUIESCE, Phase.FREE, Phase.LOAD, Phase.BAKE, Phase.PROMOTE)


@dataclass(frozen=True)
class Case:
    """Something happens to a node at a moment of a swap."""

    happens: Callable[[FleetNode], None]
    to: str
    moment: Moment

    @property
    def spared(self) -> bool:
        """Whether nothing that requests go through is touched."""
        before = self.moment.mode is Mode.ACROSS and self.moment.phase.order < Phase.SWITCH.order
        engine_node = self.happens in (docker_dies, power_fails)
        touched = self.to in (GATEWAY, self.moment.blue) if engine_node else self.happens is haproxy_dies
        return before and not touched

    def __str__(self) -> str:
        return f"{self.happens.__name__} on {self.to}, {self.moment}"


ALL = [
    Case(happens, to, Moment(mode, phase, blue))
    for blue in ("node-2", "node-1")
    for happens in FAULTS
    for to in ((GATEWAY,) if happens is haproxy_dies else ("node-1", "node-2"))
    for mode, phases in ((Mode.ACROSS, PHASES), (Mode.IN_PLACE, IN_PLACE))
    for phase in phases
]
CHOSEN = (
    Case(docker_dies, "node-2", Moment(Mode.ACROSS, Phase.LOAD, "node-1")),
    Case(connections_end, "node-2", Moment(Mode.ACROSS, Phase.BAKE)),
)


@pytest.mark.parametrize("case", some(ALL, *CHOSEN))
def test_what_is_lost_comes_back_to_a_good_end(stand_in: Service, case: Case) -> None:
    moment = case.moment
    stand_in.begin(node=moment.blue)
    with stand_in.load(rate=20, streams=4) as load:
        load.wait_for(20, 60)
        with at(stand_in, moment.phase, *moment.argv, name="second") as deploy:
            case.happens(stand_in.nodes.node(case.to))
            _, err = deploy.communicate(timeout=240)
        if deploy.returncode:
            assert err.splitlines()[-1].strip().startswith(("next: ", "stand-in-", "saved")), err
        pass_by(stand_in, past_deadline_s(stand_in))
        good_end(stand_in)
        load.wait_for(load.report().good + 20, 60)
    if case.spared:
        assert (load.report().failures, load.report().refusals) == ({}, 0), load.report()
