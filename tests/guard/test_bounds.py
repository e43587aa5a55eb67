"""A wait of a leader has a bound that nothing unrelated resets, and a change of the gateway that fails is an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from sparkops.errors import SparkopsError
from sparkops.guard.disk.notes import RESTART
from sparkops.guard.disk.state import State
from sparkops.guard.environment import NodeClock
from sparkops.guard.lead.gateway_front import GatewayFront
from sparkops.guard.lead.lead import FAILED_S, Lead
from sparkops.swap.effects import CutRequests, FrontEffect
from sparkops.swap.fleet_state import EngineReport, EngineState, GatewayView, Report
from sparkops.swap.journal import HOUR_S, PAUSES_S, Journal
from sparkops.swap.model import Answer, Limits, Mode, Phase, RankSpec, Replica
from sparkops.swap.orders import hold
from tests.guard.test_reproductions import NEW, OLD, RELEASES, begun

SLOTS = {item.slot: item.release for item in RELEASES.values()}
OLD_SLOT, NEW_SLOT = RELEASES[OLD].slot, RELEASES[NEW].slot
FULL = "No space left on device"


@dataclass
class Clock:
    """Monotonic seconds, in place of those of this process."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@dataclass
class Gateway:
    """A gateway with both releases in their slots, none of them active. `full`: every change fails."""

    view: GatewayView
    full: bool = False
    executed: list[FrontEffect] = field(default_factory=list)

    def look(self, *_: object, **__: object) -> GatewayView:
        return self.view

    def execute(self, effect: FrontEffect) -> str:
        self.executed.append(effect)
        if self.full:
            raise SparkopsError(f"{effect}: {FULL}")
        return "1"


def lead(
    journal: Journal, tmp_path: Path, gateway: Gateway, reports: Callable[[Lead], dict[str, Report]], clock: Clock
) -> Lead:
    leads: list[Lead] = []
    front = cast(GatewayFront, gateway)
    peers = lambda: frozenset({"n2"})  # noqa: E731
    state = State(tmp_path, lambda: NodeClock(clock.now_s, "b"))
    leads.append(Lead(journal, state, front, lambda: reports(leads[0]), peers, lambda _: None, clock=clock))
    return leads[0]


def view(**changes: Any) -> GatewayView:
    answers = {NEW_SLOT: Answer.NO, OLD_SLOT: Answer.NO}
    return replace(GatewayView(None, SLOTS, answers, {NEW_SLOT: 0, OLD_SLOT: 0}), **changes)


def test_a_node_that_comes_and_goes_is_no_progress_either(tmp_path: Path, clock: Clock) -> None:
    wedged = (EngineReport(NEW.container, EngineState.STOPPED), EngineReport(OLD.container, EngineState.HEALTHY))

    def reports(led: Lead) -> dict[str, Report]:
        at = led.journal.revision
        known = {"n2": Report("n2", "b", 1, at, at)}
        return {**known, "n1": Report("n1", "b", 1, at, at, wedged)} if clock.now_s % 100 < 50 else known

    led = lead(replace(begun(Phase.FREE), peers=("n2",)), tmp_path, Gateway(view()), reports, clock)
    while clock.now_s < 1000.0:
        led.turn()
        clock.now_s += 3.0

    assert led.trouble() == "no progress in phase 'stop old release'"


def proven(led: Lead) -> dict[str, Report]:
    """The new release is proven, the old one has stopped."""
    swap = led.journal.swap
    key, at = swap.key if swap else "", led.journal.revision
    engines = (
        EngineReport(NEW.container, EngineState.HEALTHY, key, Answer.YES, key),
        EngineReport(OLD.container, EngineState.STOPPED),
    )
    return {"n1": Report("n1", "b", 1, at, at, engines), "n2": Report("n2", "b", 1, at, at)}


def test_a_full_disk_of_the_gateway_s_node_is_reported_and_the_swap_ends_once_it_is_freed(
    tmp_path: Path, clock: Clock
) -> None:
    journal = replace(begun(Phase.SWITCH), leader="n1", peers=("n2",))
    gateway = Gateway(view(answers={NEW_SLOT: Answer.YES, OLD_SLOT: Answer.NO}), full=True)
    led = lead(journal, tmp_path, gateway, proven, clock)

    while clock.now_s < 1000.0 and not led.journal.trouble:
        clock.now_s += led.turn() or 0.01

    assert FULL in led.trouble()
    assert led.journal.swap
    gateway.full = False
    gateway.view = replace(gateway.view, active=NEW_SLOT)
    for _ in range(5):
        led.turn()
    assert led.trouble() == ""
    assert led.journal.swap.phase.order > Phase.SWITCH.order


def test_requests_that_a_cut_does_not_end_are_counted_once_and_have_a_bound(tmp_path: Path, clock: Clock) -> None:
    journal = begun(Phase.QUIESCE)
    assert journal.swap
    assert journal.swap.source
    source = replace(journal.swap.source, limits=Limits(drain_s=0.0, start_s=0.0))
    journal = replace(journal, swap=replace(journal.swap, source=source), active=source, peers=("n2",))
    stuck = view(answers={OLD_SLOT: Answer.YES, NEW_SLOT: Answer.NO}, open={OLD_SLOT: 1, NEW_SLOT: 0})
    gateway = Gateway(stuck)
    engines = (EngineReport(NEW.container, EngineState.STOPPED), EngineReport(OLD.container, EngineState.HEALTHY))

    def reports(led: Lead) -> dict[str, Report]:
        at = led.journal.revision
        return {"n1": Report("n1", "b", 1, at, at, engines), "n2": Report("n2", "b", 1, at, at)}

    led = lead(journal, tmp_path, gateway, reports, clock)
    paused: list[float] = []

    while clock.now_s < 1000.0 and not led.journal.swap.reverting:  # type: ignore[union-attr]
        paused.append(led.turn())
        clock.now_s += paused[-1] or 0.01

    assert led.journal.swap
    assert led.journal.swap.reverting
    assert {type(effect) for effect in gateway.executed} == {CutRequests}
    assert paused[2:-1] == [FAILED_S] * len(paused[2:-1])
    assert led.cut == 1
    assert len([event for event in led.state.events("chat") if "were cut" in event["text"]]) == 1


def test_restarts_of_a_replica_have_the_budget_of_an_hour_that_survives_the_process(
    tmp_path: Path, clock: Clock
) -> None:
    head, worker = replace(OLD, node="n1"), RankSpec("n2", "old-r1")
    pair = replace(RELEASES[OLD], replicas=(Replica((head, worker)),))
    gateway = Gateway(view(open={OLD_SLOT: 0}, slots={OLD_SLOT: pair.release}))

    def ended(led: Lead) -> dict[str, Report]:
        """Every start of a rank ends at once."""
        journal = led.journal
        key = journal.swap.key if journal.swap else ""
        known = {rank: (EngineReport(rank.container, EngineState.STOPPED, key),) for rank in (head, worker)}
        return {rank.node: Report(rank.node, "b", 1, journal.revision, journal.revision, known[rank]) for rank in known}

    journal = Journal("chat", "n1", ("n2",), active=pair)
    led = lead(journal, tmp_path, gateway, ended, clock)
    began: list[float] = []
    troubles = [""]
    while clock.now_s < 8000.0:
        starts = led.journal.starts
        led.turn()
        if led.journal.starts > starts:
            began.append(clock.now_s)
        if clock.now_s in (100.0, 2000.0):  # another process
            led = lead(led.journal, tmp_path, gateway, ended, clock)
        troubles += [led.journal.trouble] if led.journal.trouble != troubles[-1] else []
        clock.now_s += 5.0

    pauses = [later - before for before, later in pairwise(began)]
    assert len(pauses) == 7
    whole = [*PAUSES_S, HOUR_S]
    for pause_s, least_s in zip(pauses, [*whole, *whole, PAUSES_S[0]], strict=True):
        assert least_s <= pause_s <= least_s + 15.0
    assert troubles == ["", *["n1: old-r0 ended", ""] * 2]
    events = [event["text"] for event in led.state.events("chat") if event["kind"] == RESTART]
    since = ", since n1: old-r0 ended"
    assert events[:3] == [
        f"old-r0 is restarted{why}: {n} of 3 within an hour" for n, why in ((1, ""), (2, since), (3, since))
    ]


SHORT = Limits(drain_s=200.0, unknown_s=300.0, load_s=900.0, verify_s=700.0)
NEVER_S = 4000.0


def bounded(phase: Phase, mode: Mode) -> Journal:
    """A swap in a phase, each of whose bounds differs from every other one."""
    journal = begun(phase, mode)
    assert journal.swap
    assert journal.swap.source
    old, new = (replace(item, limits=SHORT) for item in (journal.swap.source, journal.swap.target))
    active = old if journal.active == journal.swap.source else new
    return replace(journal, active=active, swap=replace(journal.swap, source=old, target=new), peers=("n2", "n3"))


@pytest.mark.parametrize("flaps", [False, True], ids=["steady", "an unrelated guard comes and goes"])
@pytest.mark.parametrize(
    ("phase", "mode", "state", "bound_s"),
    [
        (Phase.LOAD, Mode.IN_PLACE, EngineState.LOADING, 900.0),
        (Phase.VERIFY, Mode.IN_PLACE, EngineState.HEALTHY, 700.0),
        (Phase.DRAIN, Mode.ACROSS, EngineState.HEALTHY, 200.0 + 300.0),
    ],
)
def test_a_phase_that_takes_long_by_nature_has_a_bound_of_its_own(
    tmp_path: Path, clock: Clock, phase: Phase, mode: Mode, state: EngineState, bound_s: float, flaps: bool
) -> None:
    """The load does not end, the checks do not end, or neither release answers, so that no time of a drain counts."""
    journal = bounded(phase, mode)
    key = journal.swap.key if journal.swap else ""

    def reports(led: Lead) -> dict[str, Report]:
        at = led.journal.revision
        engines = (EngineReport(NEW.container, state, key), EngineReport(OLD.container, EngineState.HEALTHY))
        known = {"n1": Report("n1", "b", 1, at, at, engines), "n2": Report("n2", "b", 1, at, at)}
        up = not flaps or clock.now_s % 120 < 60
        return {**known, "n3": Report("n3", "b", 1, at, at)} if up else known

    stuck = view(active=NEW_SLOT if phase is Phase.DRAIN else None, open={NEW_SLOT: 0, OLD_SLOT: 1})
    led = lead(journal, tmp_path, Gateway(stuck), reports, clock)
    ended_s = NEVER_S
    while clock.now_s < NEVER_S and ended_s == NEVER_S:
        clock.now_s += led.turn() or 0.01
        swap = led.journal.swap
        if led.journal.trouble or swap is None or swap.reverting:
            ended_s = clock.now_s

    assert ended_s == pytest.approx(bound_s, abs=10.0)
    assert f"no progress in phase '{phase}'" in [led.journal.trouble, swap.why if swap else ""]


def starting(led: Lead, text: str = "", load: str = "", container: str = OLD.container) -> dict[str, Report]:
    """The release of this swap exists and waits: for memory, with a `text`, or behind the `load` of another engine."""
    swap, at = led.journal.swap, led.journal.revision
    key = swap.key if swap else ""
    waits = EngineReport(container, EngineState.STOPPED, key if text else "", problem=text, refused=bool(text))
    other = NEW.container if container == OLD.container else OLD.container
    engines = (waits, EngineReport(other, EngineState.STOPPED))
    return {"n1": Report("n1", "b", 1, at, at, engines, load=load), "n2": Report("n2", "b", 1, at, at)}


@pytest.mark.parametrize("gib_per_s", [0.0, 0.1 / 480, 0.1], ids=["constant", "drifts", "jumps"])
def test_a_figure_that_changes_is_no_progress(tmp_path: Path, clock: Clock, gib_per_s: float) -> None:
    journal = replace(begun(Phase.START).reverted("new-r0 did not start").advanced(), peers=("n2",))
    assert (journal.swap and journal.swap.phase, journal.leader) == (Phase.START, "n1")

    def lacks(led: Lead) -> dict[str, Report]:
        return starting(led, f"memory not freed: {40 - gib_per_s * clock.now_s:.1f} GiB available")

    led = lead(journal, tmp_path, Gateway(view()), lacks, clock)
    while clock.now_s < 1000.0 and not led.journal.trouble:
        led.turn()
        clock.now_s += 3.0

    assert "memory not freed" in led.trouble()
    assert clock.now_s < 700.0


@pytest.mark.parametrize("look_s", [1.0, 35.0])
def test_a_bound_lasts_as_long_however_slow_the_looks_are(tmp_path: Path, clock: Clock, look_s: float) -> None:
    def reports(led: Lead) -> dict[str, Report]:
        at = led.journal.revision
        engines = (EngineReport(OLD.container, EngineState.HEALTHY), EngineReport(NEW.container, EngineState.STOPPED))
        return {"n1": Report("n1", "b", 1, at, at, engines), "n2": Report("n2", "b", 1, at, at)}

    class Hung(Gateway):
        def look(self, *_: object, **__: object) -> None:  # type: ignore[override]
            clock.now_s += look_s

    led = lead(replace(begun(Phase.QUIESCE), peers=("n2",)), tmp_path, Hung(view()), reports, clock)
    while led.journal.swap and not led.journal.swap.reverting and clock.now_s < 7200.0:
        clock.now_s += led.turn()

    assert 600.0 <= clock.now_s < 750.0


@pytest.mark.parametrize("mode", [Mode.BESIDE, Mode.IN_PLACE])
def test_a_start_waits_for_the_load_of_another_engine_within_the_bound_of_a_load(
    tmp_path: Path, clock: Clock, mode: Mode
) -> None:
    journal = replace(begun(Phase.START, mode), peers=("n2",))
    assert journal.swap
    target = replace(journal.swap.target, limits=Limits(start_s=300.0, load_s=3600.0))
    journal = replace(journal, swap=replace(journal.swap, target=target))

    def behind(led: Lead) -> dict[str, Report]:
        return starting(led, load="embed-r0", container=NEW.container)

    active = OLD_SLOT if mode is Mode.BESIDE else None
    gateway = Gateway(view(active=active, answers={OLD_SLOT: Answer.YES if active else Answer.NO}, held="1.1+"))
    led = lead(journal, tmp_path, gateway, behind, clock)
    while clock.now_s < 3500.0:
        led.turn()
        clock.now_s += 3.0

    assert (led.trouble(), led.journal.swap and led.journal.swap.phase) == ("", Phase.START)
    assert (hold(led.journal) is not None) == (mode is Mode.IN_PLACE), "requests wait all the time"

    while clock.now_s < 3700.0 and led.journal.swap and not led.journal.swap.reverting:
        led.turn()
        clock.now_s += 3.0

    why = "n1: embed-r0 loads first"
    swap = led.journal.swap
    assert (swap.why if swap else led.journal.outcomes[-1].why) == why
