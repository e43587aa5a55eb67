"""A deploy is killed or stopped, a node or a part of it is lost: what comes of it needs no person."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from sparkops.plan.journal import Mode, Phase
from sparkops.plan.swap import PHASES
from tests.real.endings import PAST_LEASE_S, at, good_end, pass_by, past_deadline_s
from tests.real.service import Service

pytestmark = pytest.mark.fleet

MODES = {Mode.ACROSS: (), Mode.BESIDE: (), Mode.IN_PLACE: ("--allow-downtime",)}


@dataclass(frozen=True)
class Case:
    """A swap from blue on one node in a mode, in which something happens when a phase is written down."""

    mode: Mode
    phase: Phase
    blue: str = "node-2"

    @property
    def argv(self) -> tuple[str, ...]:
        other = "node-1" if self.blue == "node-2" else "node-2"
        return ("--mode", self.mode, *MODES[self.mode], "--node", other if self.mode is Mode.ACROSS else self.blue)

    @property
    def decided(self) -> str | None:
        """Who must serve in the end where nobody comes back to the deploy; None: either."""
        if self.phase.order < Phase.SWITCH.order:
            return "blue"
        return "green" if self.phase.order >= Phase.PROMOTE.order else None

    def __str__(self) -> str:
        return f"{self.mode}, {self.phase}, blue on {self.blue}"


ALL = [Case(mode, phase, blue) for mode in MODES for phase in PHASES[mode] for blue in ("node-2", "node-1")]


def some(*chosen: Case) -> list[object]:
    """All cases; those that are not chosen are of the matrix."""
    assert set(chosen) <= set(ALL)
    marked = [pytest.param(each, marks=() if each in chosen else pytest.mark.matrix, id=str(each)) for each in ALL]
    return [*marked]


@contextmanager
def load(service: Service, case: Case) -> Iterator[None]:
    """Holds that meanwhile no request fails; in place, that each refusal is the documented one."""
    with service.load(rate=20, streams=4) as made:
        made.wait_for(20, 60)
        yield
        made.wait_for(made.report().good + 20, 60)
    report = made.report()
    assert report.failures == {}, report
    assert case.mode is Mode.IN_PLACE or report.refusals == 0, report


@pytest.mark.parametrize(
    "case",
    some(Case(Mode.ACROSS, Phase.BAKE, "node-1")),
)
def test_a_deploy_that_is_killed_is_ended_by_the_guards(service: Service, case: Case) -> None:
    service.begin(node=case.blue)
    (blue,) = service.running()
    with load(service, case):
        with at(service, case.phase, *case.argv, name="second") as deploy:
            deploy.kill()
        pass_by(service, past_deadline_s(service))
        live = good_end(service)
    assert case.decided in (None, "blue" if live == blue.release else "green"), live


@pytest.mark.parametrize("case", some(Case(Mode.ACROSS, Phase.SWITCH)))
def test_the_same_deploy_again_ends_what_a_killed_one_has_begun(service: Service, case: Case) -> None:
    service.begin(node=case.blue)
    with load(service, case):
        with at(service, case.phase, *case.argv, name="second") as deploy:
            deploy.kill()
        pass_by(service, PAST_LEASE_S)
        again = service.deploy(*case.argv, "--wait", "60", name="second")
        live = good_end(service)
    assert again.code == 0, again.err
    assert again.json["release"] == live


@pytest.mark.parametrize("case", some(Case(Mode.ACROSS, Phase.LOAD)))
def test_a_laptop_that_wakes_up_after_its_lease_changes_nothing(service: Service, case: Case) -> None:
    service.begin(node=case.blue)
    with load(service, case), at(service, case.phase, *case.argv, name="second") as deploy:
        deploy.send_signal(signal.SIGSTOP)
        pass_by(service, past_deadline_s(service))
        live = good_end(service)
        since = {each.name: each.started_at for each in service.running()}
        deploy.send_signal(signal.SIGCONT)
        _, err = deploy.communicate(timeout=60)
        assert deploy.returncode in (1, 4), err
        assert "another deploy has taken over stand-in" in err
        assert good_end(service) == live
        assert {each.name: each.started_at for each in service.running()} == since
