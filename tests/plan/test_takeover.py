"""What a guard must do about a service, for every phase in which a deploy may have gone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest

from sparkops.plan.journal import LEASE_S, Clock, Holder, Journal, Mode, Phase, Retirement, Swap
from sparkops.plan.takeover import Duty, blue_was_stopped, duty, no_traffic
from tests.plan.places import placed

NOW_S = 1000.0
BOOT = "boot-1"
EARLY = (Phase.ARM, Phase.QUIESCE, Phase.FREE, Phase.START, Phase.LOAD, Phase.VERIFY)
OPEN = (Phase.SWITCH, Phase.BAKE)
PROMOTED = (Phase.PROMOTE, Phase.DRAIN, Phase.RETIRE)
EVERYWHERE = list(product(Mode, Phase))


@dataclass(frozen=True)
class Case:
    """A situation. `lease_s` is the age of the last renewal, None where the lock is free."""

    lease_s: float | None = None
    deadline_s: float = NOW_S + 100
    boot: str = BOOT
    waiting: bool = False
    hold: str | None = None

    def due(self, mode: Mode, phase: Phase) -> Duty:
        swap = Swap(
            deploy="d1",
            mode=mode,
            gateway="n1",
            green=placed("new", "green"),
            blue=placed("old", "blue"),
            phase=phase,
            deadline_s=self.deadline_s,
            boot=BOOT,
            waiting=self.waiting,
        )
        holder = None
        if self.lease_s is not None:
            holder = Holder(owner="ann", deploy="d1", renewed_s=NOW_S - self.lease_s, boot=BOOT)
        journal = Journal(service="chat", generation=3, holder=holder, swap=swap, hold=self.hold)
        return duty(journal, Clock(NOW_S, self.boot))


LATE = NOW_S - 1
ALIVE = LEASE_S - 1


@pytest.mark.parametrize(
    ("case", "early", "open_", "promoted"),
    [
        (Case(ALIVE), Duty.NOTHING, Duty.NOTHING, Duty.NOTHING),
        (Case(ALIVE, deadline_s=LATE), Duty.NOTHING, Duty.NOTHING, Duty.NOTHING),
        (Case(ALIVE, boot="boot-2"), Duty.REVERT, Duty.JUDGE, Duty.FINISH),
        (Case(LEASE_S), Duty.NOTHING, Duty.JUDGE, Duty.FINISH),
        (Case(LEASE_S, deadline_s=LATE), Duty.REVERT, Duty.JUDGE, Duty.FINISH),
        (Case(LEASE_S, boot="boot-2"), Duty.REVERT, Duty.JUDGE, Duty.FINISH),
        (Case(), Duty.NOTHING, Duty.JUDGE, Duty.FINISH),
        (Case(deadline_s=NOW_S), Duty.REVERT, Duty.JUDGE, Duty.FINISH),
        (Case(boot="boot-2"), Duty.REVERT, Duty.JUDGE, Duty.FINISH),
        (Case(waiting=True, deadline_s=LATE), Duty.NOTHING, Duty.NOTHING, Duty.NOTHING),
        (Case(waiting=True, boot="boot-2"), Duty.NOTHING, Duty.NOTHING, Duty.NOTHING),
        (Case(deadline_s=LATE, hold="stop"), Duty.NOTHING, Duty.NOTHING, Duty.NOTHING),
        (Case(boot="boot-2", hold="stop"), Duty.NOTHING, Duty.NOTHING, Duty.NOTHING),
    ],
    ids=[
        "a deploy lives",
        "a deploy lives, late",
        "a deploy held it before the reboot",
        "lease ended",
        "lease ended, late",
        "lease ended, rebooted",
        "given back",
        "given back, late",
        "given back, rebooted",
        "waits, late",
        "waits, rebooted",
        "hold, late",
        "hold, rebooted",
    ],
)
def test_what_is_due_depends_on_the_phase_and_on_who_still_lives(
    case: Case, early: Duty, open_: Duty, promoted: Duty
) -> None:
    expected = {**dict.fromkeys(EARLY, early), **dict.fromkeys(OPEN, open_), **dict.fromkeys(PROMOTED, promoted)}

    assert {(mode, phase): case.due(mode, phase) for mode, phase in EVERYWHERE} == {
        (mode, phase): expected[phase] for mode, phase in EVERYWHERE
    }


def test_without_a_swap_nothing_is_due() -> None:
    assert duty(Journal(service="chat", active=placed("new", "green")), Clock(NOW_S, BOOT)) is Duty.NOTHING


@pytest.mark.parametrize(
    ("due_s", "boot", "lease_s", "hold", "due"),
    [
        (NOW_S + 1, BOOT, None, None, Duty.NOTHING),
        (NOW_S, BOOT, None, None, Duty.RETIRE),
        (NOW_S + 1, "boot-0", None, None, Duty.RETIRE),
        (NOW_S, BOOT, ALIVE, None, Duty.NOTHING),
        (NOW_S, BOOT, LEASE_S, None, Duty.RETIRE),
        (NOW_S, BOOT, None, "stop", Duty.NOTHING),
    ],
    ids=["not yet", "time", "rebooted", "a deploy lives", "a deploy is gone", "hold"],
)
def test_a_warm_release_is_retired_when_its_time_has_come(
    due_s: float, boot: str, lease_s: float | None, hold: str | None, due: Duty
) -> None:
    retirement = Retirement(placed=placed("old", "blue"), due_s=due_s, boot=boot)
    holder = None
    if lease_s is not None:
        holder = Holder(owner="ann", deploy="d2", renewed_s=NOW_S - lease_s, boot=BOOT)
    journal = Journal(service="chat", holder=holder, retirement=retirement, hold=hold)

    assert duty(journal, Clock(NOW_S, BOOT)) is due


def test_a_swap_goes_before_a_retirement() -> None:
    swap = Swap(deploy="d1", mode=Mode.ACROSS, gateway="n1", green=placed("new", "green"), phase=Phase.BAKE)
    retirement = Retirement(placed=placed("old", "blue"), due_s=0.0, boot=BOOT)

    journal = Journal(service="chat", swap=swap, retirement=retirement)

    assert duty(journal, Clock(NOW_S, BOOT)) is Duty.JUDGE


def swap_in(mode: Mode, phase: Phase) -> Swap:
    return Swap(deploy="d1", mode=mode, gateway="n1", green=placed("new", "green"), phase=phase)


def test_only_in_place_takes_the_traffic_from_blue_and_then_stops_it() -> None:
    without_traffic = {(mode, phase) for mode, phase in EVERYWHERE if no_traffic(swap_in(mode, phase))}
    stopped = {(mode, phase) for mode, phase in EVERYWHERE if blue_was_stopped(swap_in(mode, phase))}

    assert without_traffic == {(Mode.IN_PLACE, phase) for phase in Phase if phase is not Phase.ARM}
    assert stopped == without_traffic - {(Mode.IN_PLACE, Phase.QUIESCE)}
