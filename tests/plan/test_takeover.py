"""What a guard must do about a service, for every phase in which a deploy may have gone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest

from sparkops.plan.journal import Holder, Journal, Mode, Phase, Retirement, Swap, Verdict
from sparkops.plan.lock import LEASE_S, Clock
from sparkops.plan.takeover import Duty, Part, Word, blue_was_stopped, duty, may_retire, no_traffic, part, word
from tests.plan.places import GATEWAY, placed

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
    node: str = "n1"
    verdict: Verdict | None = None

    def due(self, mode: Mode, phase: Phase) -> Duty:
        swap = Swap(
            deploy="d1",
            mode=mode,
            gateway=GATEWAY,
            green=placed("new", "green"),
            blue=placed("old", "blue"),
            phase=phase,
            deadline_s=self.deadline_s,
            boot=BOOT,
            waiting=self.waiting,
            verdict=self.verdict,
        )
        holder = None
        if self.lease_s is not None:
            holder = Holder(owner="ann", deploy="d1", renewed_s=NOW_S - self.lease_s, boot=BOOT)
        journal = Journal(service="chat", generation=3, holder=holder, swap=swap, hold=self.hold)
        return duty(journal, Clock(NOW_S, self.boot), self.node)


LATE = NOW_S - 1
ALIVE = LEASE_S - 1


@pytest.mark.parametrize(
    ("case", "early", "open_", "promoted"),
    [
        (Case(ALIVE), Duty.NOTHING, Duty.NOTHING, Duty.NOTHING),
        (Case(ALIVE, deadline_s=LATE), Duty.NOTHING, Duty.NOTHING, Duty.NOTHING),
        (Case(ALIVE, boot="boot-2"), Duty.REVERT, Duty.JUDGE, Duty.FINISH),
        (Case(LEASE_S), Duty.LOOK_AT_BLUE, Duty.JUDGE, Duty.FINISH),
        (Case(LEASE_S, deadline_s=LATE), Duty.REVERT, Duty.JUDGE, Duty.FINISH),
        (Case(LEASE_S, boot="boot-2"), Duty.REVERT, Duty.JUDGE, Duty.FINISH),
        (Case(), Duty.LOOK_AT_BLUE, Duty.JUDGE, Duty.FINISH),
        (Case(deadline_s=NOW_S), Duty.REVERT, Duty.JUDGE, Duty.FINISH),
        (Case(boot="boot-2"), Duty.REVERT, Duty.JUDGE, Duty.FINISH),
        (Case(waiting=True, deadline_s=LATE), *(Duty.LOOK_AT_GREEN,) * 3),
        (Case(waiting=True, boot="boot-2"), *(Duty.LOOK_AT_GREEN,) * 3),
        (Case(verdict=Verdict.REVERT), *(Duty.REVERT,) * 3),
        (Case(verdict=Verdict.FINISH, boot="boot-2"), *(Duty.FINISH,) * 3),
        (Case(ALIVE, verdict=Verdict.REVERT), *(Duty.NOTHING,) * 3),
        (Case(node="n2"), *(Duty.ASK,) * 3),
        (Case(node="n2", deadline_s=LATE, waiting=True), *(Duty.ASK,) * 3),
        (Case(ALIVE, node="n2"), *(Duty.NOTHING,) * 3),
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
        "going back was decided",
        "going on was decided",
        "a deploy goes back",
        "elsewhere",
        "elsewhere, late",
        "elsewhere, a deploy lives",
        "hold, late",
        "hold, rebooted",
    ],
)
def test_what_is_due_depends_on_the_phase_and_on_who_still_lives(
    case: Case, early: Duty, open_: Duty, promoted: Duty
) -> None:
    expected = {**dict.fromkeys(EARLY, early), **dict.fromkeys(OPEN, open_), **dict.fromkeys(PROMOTED, promoted)}

    found = {(mode, phase): case.due(mode, phase) for mode, phase in EVERYWHERE}
    assert found == {(mode, phase): where_it_makes_sense(expected[phase], mode, phase) for mode, phase in EVERYWHERE}


def where_it_makes_sense(due: Duty, mode: Mode, phase: Phase) -> Duty:
    """Blue is looked at only where nobody has the traffic."""
    looks = due is not Duty.LOOK_AT_BLUE or no_traffic(swap_in(mode, phase))
    return due if looks else Duty.NOTHING


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("phase", Phase)
def test_after_its_reboot_a_node_far_from_the_gateway_decides_only_what_cannot_be_otherwise(
    mode: Mode, phase: Phase
) -> None:
    """In place, before the switch: green has died with the node, and will not start by itself."""
    alone = mode is Mode.IN_PLACE and phase in EARLY and phase not in (Phase.ARM, Phase.QUIESCE)

    assert Case(node="n2", boot="boot-2").due(mode, phase) is (Duty.REVERT if alone else Duty.ASK)


def told(**changes: object) -> Part:
    return part(swap_in(Mode.ACROSS, Phase.BAKE), Word.model_validate({"deploy": "d1", **changes}))


def test_the_guard_of_another_node_does_nothing_before_the_word_of_the_one_beside_the_gateway() -> None:
    assert told() is Part.WAIT
    assert told(held=True) is Part.WAIT
    assert told(verdict="revert") is Part.WAIT, "green may still have the traffic"
    assert told(verdict="revert", traffic_moved=True) is Part.REVERT
    assert told(verdict="finish") is Part.KEEP_GREEN, "blue may still have streams"
    assert told(verdict="finish", traffic_moved=True) is Part.FINISH


@pytest.mark.parametrize("deploy", [None, "d2"])
def test_a_node_that_missed_the_end_of_a_swap_follows_who_has_the_traffic(deploy: str | None) -> None:
    green, blue = placed("new", "green").where, placed("old", "blue").where

    assert told(deploy=deploy, active=green) is Part.FINISH
    assert told(deploy=deploy, active=blue) is Part.REVERT
    assert told(deploy=deploy, active=None) is Part.REVERT
    assert told(deploy=deploy, active=green, held=True) is Part.WAIT


def test_a_warm_release_that_has_the_traffic_again_is_not_retired_elsewhere() -> None:
    warm, other = placed("old", "blue"), placed("new", "green")
    journal = Journal(service="chat", retirement=Retirement(placed=warm, gateway=GATEWAY))

    assert may_retire(journal, Word(active=other.where)) is True
    assert may_retire(journal, Word(active=warm.where)) is False
    assert may_retire(journal, Word(active=other.where, warm=warm.where)) is None
    assert may_retire(journal, Word(active=other.where, warm="n1/another")) is True
    assert may_retire(journal, Word(active=other.where, held=True)) is None
    assert may_retire(journal, Word(active=other.where, deploy="d2")) is None


def test_what_is_told_is_what_the_journal_says() -> None:
    swap = swap_in(Mode.ACROSS, Phase.BAKE).model_copy(update={"verdict": Verdict.FINISH, "traffic_moved": True})
    holder = Holder(owner="ann", deploy="d1", renewed_s=NOW_S, boot=BOOT)
    journal = Journal(service="chat", swap=swap, active=placed("old", "blue"), holder=holder)
    expected = Word(deploy="d1", verdict=Verdict.FINISH, traffic_moved=True, active="n1/old-blue-r0", held=True)

    assert word(journal, Clock(NOW_S, BOOT)) == expected
    assert word(Journal(service="chat"), Clock(NOW_S, BOOT)) == Word()
    retirement = Retirement(placed=placed("old", "blue"), gateway=GATEWAY)
    assert word(Journal(service="chat", retirement=retirement), Clock(NOW_S, BOOT)) == Word(warm="n1/old-blue-r0")


@pytest.mark.parametrize(("age_s", "held"), [(LEASE_S - 0.5, True), (LEASE_S, False)])
def test_the_lock_is_held_until_the_last_moment_of_its_lease(age_s: float, held: bool) -> None:
    holder = Holder(owner="ann", deploy="d1", renewed_s=NOW_S - age_s, boot=BOOT)

    assert word(Journal(service="chat", holder=holder), Clock(NOW_S, BOOT)).held is held


def test_without_a_swap_nothing_is_due() -> None:
    assert duty(Journal(service="chat", active=placed("new", "green")), Clock(NOW_S, BOOT), "n1") is Duty.NOTHING


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
    retirement = Retirement(placed=placed("old", "blue"), gateway=GATEWAY, due_s=due_s, boot=boot)
    holder = None
    if lease_s is not None:
        holder = Holder(owner="ann", deploy="d2", renewed_s=NOW_S - lease_s, boot=BOOT)
    journal = Journal(service="chat", holder=holder, retirement=retirement, hold=hold)

    assert duty(journal, Clock(NOW_S, BOOT), "n1") is due


def test_a_swap_goes_before_a_retirement() -> None:
    swap = Swap(deploy="d1", mode=Mode.ACROSS, gateway=GATEWAY, green=placed("new", "green"), phase=Phase.BAKE)
    retirement = Retirement(placed=placed("old", "blue"), gateway=GATEWAY, due_s=0.0, boot=BOOT)

    journal = Journal(service="chat", swap=swap, retirement=retirement)

    assert duty(journal, Clock(NOW_S, BOOT), "n1") is Duty.JUDGE


def swap_in(mode: Mode, phase: Phase) -> Swap:
    return Swap(deploy="d1", mode=mode, gateway=GATEWAY, green=placed("new", "green"), phase=phase)


def test_only_in_place_takes_the_traffic_from_blue_and_then_stops_it() -> None:
    without_traffic = {(mode, phase) for mode, phase in EVERYWHERE if no_traffic(swap_in(mode, phase))}
    stopped = {(mode, phase) for mode, phase in EVERYWHERE if blue_was_stopped(swap_in(mode, phase))}

    assert without_traffic == {(Mode.IN_PLACE, phase) for phase in Phase if phase is not Phase.ARM}
    assert stopped == without_traffic - {(Mode.IN_PLACE, Phase.QUIESCE)}
