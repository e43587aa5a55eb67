"""A part of the fleet dies or is cut off in any phase of a swap, under load: it ends well without an operator."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from sparkops.swap.model import PHASES, Mode, Phase
from tests.real.cases import Moment, some
from tests.real.endings import at, good_end
from tests.real.service import GATEWAY, PATIENCE_S, Service, unused

pytestmark = pytest.mark.fleet

Deploying = subprocess.Popen[str]
CUT_S = 12.0
"""A link is silent for so long: past the time after which a report counts no more."""


def cli_is_killed(_: Service, deploy: Deploying, __: str) -> None:
    """The operator's laptop is gone."""
    deploy.kill()


def guard_dies(service: Service, _: Deploying, node: str) -> None:
    """Docker starts its container again."""
    service.nodes.node(node).kill_container("sparkops-guard")


def haproxy_dies(service: Service, _: Deploying, node: str) -> None:
    """Docker starts its container again."""
    service.nodes.node(node).kill_container("sparkops-gateway")


def docker_dies(service: Service, _: Deploying, node: str) -> None:
    """Its containers live on until the next one starts, which stops them."""
    service.nodes.node(node).kill_engine()
    time.sleep(1)
    service.nodes.node(node).start_engine()


def power_fails(service: Service, _: Deploying, node: str) -> None:
    """The node starts again at once."""
    service.nodes.node(node).reboot(graceful=False)


def link_is_cut(service: Service, _: Deploying, node: str) -> None:
    """The two nodes do not reach each other for a while."""
    other = next(fleet_node for fleet_node in service.nodes.nodes if fleet_node.name != node)
    service.nodes.node(node).cut(other)
    time.sleep(CUT_S)
    service.nodes.node(node).heal()


Fault = Callable[[Service, Deploying, str], None]
FAULTS: tuple[tuple[Fault, str], ...] = (
    (guard_dies, "node-1"),
    (power_fails, "node-1"),
    (guard_dies, "node-2"),
    (power_fails, "node-2"),
    (docker_dies, "node-1"),
    (cli_is_killed, GATEWAY),
    (docker_dies, "node-2"),
    (haproxy_dies, GATEWAY),
    (link_is_cut, "node-2"),
)
"""Of a fault of either node both cases have even places or both odd ones, thus one place of the service."""
QUIET = (cli_is_killed, guard_dies)
"""No request goes through what these faults touch. The gateway keeps its connections while a link is cut for CUT_S."""


@dataclass(frozen=True)
class Case:
    """Something happens to a node at a moment of a swap."""

    fault: Fault
    node: str
    moment: Moment

    @property
    def spared(self) -> bool:
        """Whether no request may fail."""
        return self.fault in QUIET and self.moment.mode is not Mode.IN_PLACE

    def __str__(self) -> str:
        return f"{self.fault.__name__} on {self.node}, {self.moment}"


MODES = (Mode.ACROSS, Mode.BESIDE, Mode.IN_PLACE)
BLUES = ("node-2", "node-1")
# A fault of the client in place, and one of a node; `make matrix` tries all faults in every phase.
CHOSEN = [
    Case(fault, node, Moment(mode, phase, blue))
    for fault, node, mode, phase, blue in (
        (power_fails, "node-2", Mode.ACROSS, Phase.VERIFY, "node-2"),
        (cli_is_killed, GATEWAY, Mode.IN_PLACE, Phase.QUIESCE, "node-1"),
    )
]


def cases() -> Iterator[Case]:
    """Every fault in every phase of every mode: at the node of the service, and at the other one.

    Which of them has the gateway changes from phase to phase: both in each phase would take three hours. Across, where
    each swap moves the service, it changes from fault to fault as well, so that a case begins where the last one has
    left the service.
    """
    for mode in MODES:
        for number, phase in enumerate(phase for phase in PHASES[mode] if phase is not Phase.WORKERS):
            for turn, (fault, node) in enumerate(FAULTS):
                place = number + (turn if mode is Mode.ACROSS else 0)
                yield Case(fault, node, Moment(mode, phase, BLUES[place % len(BLUES)]))


OTHERS = [case for case in cases() if case not in CHOSEN]


@pytest.mark.parametrize("case", some([*CHOSEN, *OTHERS], *CHOSEN))
def test_it_ends_well_without_an_operator(stand_in: Service, case: Case) -> None:
    moment = case.moment
    stand_in.begin(name="", node=moment.blue)
    (old,) = stand_in.running()
    with stand_in.load(rate=10, streams=2) as load:
        load.wait_for(20)
        with at(stand_in, moment.phase, *moment.argv, name=unused()) as deploy:
            case.fault(stand_in, deploy, case.node)
            _, err = deploy.communicate(timeout=PATIENCE_S)
            live = good_end(stand_in)
        load.wait_for(load.report().good + 20)
    if deploy.returncode > 0:
        assert "next: " in err or "stand-in-" in err, err
    if case.fault is cli_is_killed:
        assert live != old.release
    if case.spared:
        assert (load.report().failures, load.report().refusals) == ({}, 0), load.report()
