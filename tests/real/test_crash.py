"""A deploy is killed or stopped, a node or a part of it is lost: what comes of it needs no person."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparkops.plan.journal import Mode, Phase
from sparkops.plan.swap import PHASES
from tests.real.cases import Moment, some
from tests.real.endings import PAST_LEASE_S, at, good_end, pass_by, past_deadline_s
from tests.real.service import Service

pytestmark = pytest.mark.fleet

MODES = (Mode.ACROSS, Mode.BESIDE, Mode.IN_PLACE)
ALL = [Moment(mode, phase, blue) for blue in ("node-2", "node-1") for mode in MODES for phase in PHASES[mode]]


@contextmanager
def load(service: Service, moment: Moment) -> Iterator[None]:
    """Holds that meanwhile no request fails; in place, that each refusal is the documented one."""
    with service.load(rate=20, streams=4) as made:
        made.wait_for(20, 60)
        yield
        made.wait_for(made.report().good + 20, 60)
    report = made.report()
    assert report.failures == {}, report
    assert moment.mode is Mode.IN_PLACE or report.refusals == 0, report


@pytest.mark.parametrize("moment", some(ALL, Moment(Mode.ACROSS, Phase.BAKE, "node-1")))
def test_a_deploy_that_is_killed_is_ended_by_the_guards(stand_in: Service, moment: Moment) -> None:
    stand_in.begin(node=moment.blue)
    (blue,) = stand_in.running()
    with load(stand_in, moment):
        with at(stand_in, moment.phase, *moment.argv, name="second") as deploy:
            deploy.kill()
        pass_by(stand_in, past_deadline_s(stand_in))
        live = good_end(stand_in)
    assert moment.decided in (None, "blue" if live == blue.release else "green"), live


@pytest.mark.parametrize("moment", some(ALL, Moment(Mode.ACROSS, Phase.SWITCH)))
def test_the_same_deploy_again_ends_what_a_killed_one_has_begun(stand_in: Service, moment: Moment) -> None:
    stand_in.begin(node=moment.blue)
    with load(stand_in, moment):
        with at(stand_in, moment.phase, *moment.argv, name="second") as deploy:
            deploy.kill()
        pass_by(stand_in, PAST_LEASE_S)
        again = stand_in.deploy(*moment.argv, "--wait", "60", name="second")
        live = good_end(stand_in)
    assert again.code == 0, again.err
    assert again.json["release"] == live


@pytest.mark.parametrize("moment", some(ALL, Moment(Mode.ACROSS, Phase.LOAD)))
def test_a_laptop_that_wakes_up_after_its_lease_changes_nothing(stand_in: Service, moment: Moment) -> None:
    stand_in.begin(node=moment.blue)
    with load(stand_in, moment), at(stand_in, moment.phase, *moment.argv, name="second") as deploy:
        deploy.send_signal(signal.SIGSTOP)
        pass_by(stand_in, past_deadline_s(stand_in))
        live = good_end(stand_in)
        since = {each.name: each.started_at for each in stand_in.running()}
        deploy.send_signal(signal.SIGCONT)
        _, err = deploy.communicate(timeout=60)
        assert deploy.returncode in (1, 4), err
        assert "another deploy has taken over stand-in" in err
        assert good_end(stand_in) == live
        assert {each.name: each.started_at for each in stand_in.running()} == since
