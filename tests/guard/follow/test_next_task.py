"""What a guard decides for one service from what it remembers, without Docker."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from sparkops.guard.follow.local_service import SETTLE_S, LocalService
from sparkops.guard.follow.next_task import ROOM_S, Moment, load_ahead, next_start, next_task
from sparkops.guard.follow.tasks import Measure, MeasuredRoom
from sparkops.names import Slot
from sparkops.node.docker.facts import Container
from sparkops.serving import engine_spec
from sparkops.swap.effects import CreateEngine, MarkRestart, MarkStart, StartEngine
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.follower import Record
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Deployment, Mode, Phase, RankSpec, Replica
from sparkops.swap.orders import order
from tests import examples

BOOT = "boot"
NOW = Moment(BOOT, blocked=False, marked_s=0.0, now_s=100.0)
OLD, NEW = (RankSpec("n1", name, claim, name) for name, claim in (("old", 10.0), ("new", 20.0)))
RELEASES = {
    rank: Deployment(rank.container, slot, (Replica((rank,)),)) for rank, slot in zip((OLD, NEW), Slot, strict=True)
}


def container(rank: RankSpec, state: str = "exited", **changes: object) -> Container:
    created = examples.container(examples.rank(), name=rank.container, spec=engine_spec.digest(rank), state=state)
    return replace(created, **changes)  # type: ignore[arg-type]


def local_service(*containers: Container, phase: Phase = Phase.START, armed: RankSpec | None = None) -> LocalService:
    """A service whose swap to NEW is in a phase."""
    swapping = Journal("chat", "n1").begun("i1", Mode.FIRST, RELEASES[NEW], automatic=True)
    assert swapping.swap
    journal = replace(swapping, swap=replace(swapping.swap, phase=phase), active=RELEASES[armed] if armed else None)
    service = LocalService("chat", "n1", Record(copy=journal, armed=armed, term=1), frozenset(), 0.0)
    service.adopt(order(journal, "n1", BOOT))
    service.update({item.name: item for item in containers}, 1.0)
    return service


def room(free_gib: float, ended_s: float = 99.0) -> MeasuredRoom:
    return MeasuredRoom(free_gib, ended_s - 1, ended_s)


def test_an_engine_loads_only_where_its_present_start_was_asked_and_has_not_answered() -> None:
    running = container(NEW, "running")
    service = local_service(running)
    assert not service.loading("new"), "not asked yet, as after a restart of the guard"
    service.run(running).note_health(Answer.NO)
    assert service.loading("new")
    service.update({"new": replace(running, started_at=running.started_at + 1)}, 2.0)
    assert not service.loading("new")
    service.update({"new": running}, 3.0)
    service.run(running).note_health(Answer.YES)
    assert not service.loading("new")


def test_memory_is_measured_before_a_start_and_for_that_start() -> None:
    service = local_service(container(NEW))
    assert next_task(service, NOW) == Measure("new")
    service.start("new").room = room(20.0)
    assert isinstance(next_task(service, NOW), MarkStart)
    service.start("new").room = room(19.9)
    assert next_task(service, NOW) is None


@pytest.mark.parametrize(
    "moment",
    [replace(NOW, now_s=99.0 + ROOM_S), replace(NOW, marked_s=98.5)],
    ids=["too old", "from before another start"],
)
def test_a_measurement_that_is_out_of_date_is_repeated(moment: Moment) -> None:
    service = local_service(container(NEW))
    service.start("new").room = room(20.0)
    assert next_task(service, moment) == Measure("new")


def test_nothing_starts_while_another_engine_of_the_node_loads() -> None:
    service = local_service(container(NEW))
    service.start("new").room = room(20.0)
    assert next_task(service, replace(NOW, blocked=True)) is None


def test_a_release_that_does_not_fit_keeps_no_smaller_one_of_the_boot_record_down() -> None:
    service = local_service(container(NEW), container(OLD), armed=OLD)
    service.start("old").run.checked = True
    service.start("new").room = room(15.0)
    assert next_task(service, NOW) == Measure("old")
    service.start("old").room = room(15.0)
    assert next_task(service, NOW) == MarkRestart("old")


def test_who_ended_an_engine_is_known_before_it_starts_again() -> None:
    service = local_service(container(NEW, "created"), container(OLD), phase=Phase.PREPARE, armed=OLD)
    assert service.ended(BOOT) == service.containers["old"]
    assert next_task(service, NOW) is None
    service.start("old").run.checked = True
    assert next_task(service, NOW) == Measure("old")


def test_docker_is_asked_who_ended_an_engine_once_it_can_know() -> None:
    service = local_service(container(OLD), phase=Phase.PREPARE, armed=OLD)
    [old] = service.containers.values()
    checks = []
    for seen_s in (2.0, 2.0 + SETTLE_S / 2, 2.0 + SETTLE_S):
        service.update({"old": old}, seen_s)
        checks.append(service.settled(old))
    assert checks == [False, False, True]
    restarted = replace(old, started_at=old.started_at + 1)
    assert not service.settled(restarted)


def test_a_start_that_is_marked_is_executed_and_seen_before_anything_else() -> None:
    service = local_service(container(NEW))
    service.begin("new")
    assert next_task(service, NOW) == StartEngine("new")
    service.started, service.changed_s = True, 2.0
    service.update({"new": container(NEW)}, 1.5)
    assert (service.fresh, service.pending) == (False, "new")
    service.update({"new": container(NEW, "running")}, 2.5)
    assert (service.fresh, service.pending, service.local(BOOT).state("new")) == (True, "", EngineState.LOADING)


def test_a_container_of_another_spec_is_absent_unless_it_runs() -> None:
    service = local_service(container(NEW, spec="other"))
    assert service.local(BOOT).state("new") is EngineState.ABSENT
    assert next_task(service, NOW) == CreateEngine(NEW)
    service.update({"new": container(NEW, "running", spec="other")}, 2.0)
    local = service.local(BOOT)
    assert (local.state("new"), local.problems) == (EngineState.LOADING, {"new": "new runs with another spec"})


def test_a_container_that_only_has_to_stop_is_not_compared() -> None:
    service = local_service(container(NEW, "running", spec="other"))
    assert service.order
    service.adopt(order(service.order.journal.reverted("a test"), "n1", BOOT))
    assert (service.local(BOOT).state("new"), service.local(BOOT).problems) == (EngineState.LOADING, {})


def test_an_exit_is_reported_once_its_watch_has_explained_it() -> None:
    service = local_service(container(NEW))
    service.start("new").run.watch = threading.Event()
    assert service.local(BOOT).state("new") is EngineState.LOADING
    service.start("new").run.unwatch()
    assert service.local(BOOT).state("new") is EngineState.STOPPED


@pytest.mark.parametrize(
    ("phase", "armed", "answered", "unanswered", "expendable"),
    [
        (Phase.LOAD, OLD, ("old",), ("new",), ["new"]),
        (Phase.LOAD, OLD, ("old",), (), ["new"]),
        (Phase.VERIFY, OLD, ("old", "new"), (), ["new"]),
        (Phase.VERIFY, OLD, ("new",), ("old",), ["old", "new"]),
        (Phase.VERIFY, OLD, (), (), ["new"]),
        (Phase.PROMOTE, NEW, ("old", "new"), (), []),
        (Phase.PROMOTE, NEW, (), (), []),
    ],
)
def test_memory_relief_may_end_what_loads_and_what_is_not_promoted(
    phase: Phase, armed: RankSpec, answered: tuple[str, ...], unanswered: tuple[str, ...], expendable: list[str]
) -> None:
    service = local_service(container(NEW, "running"), container(OLD, "running"), phase=phase, armed=armed)
    service.record = replace(service.record, armed=OLD)
    for name, health in [*((name, Answer.YES) for name in answered), *((name, Answer.NO) for name in unanswered)]:
        service.start(name).run.note_health(health)
    assert list(service.expendable()) == expendable


def resting(*containers: Container, **changes: object) -> LocalService:
    """A service whose release OLD was promoted."""
    service = local_service(*containers, armed=OLD)
    assert service.order
    journal = replace(service.order.journal, swap=None, **changes)  # type: ignore[arg-type]
    service.adopt(order(journal, "n1", BOOT))
    return service


def test_a_service_is_calm_while_its_promoted_engine_runs_and_nothing_was_ordered() -> None:
    assert resting(container(OLD, "running")).calm(BOOT)
    assert not resting(container(OLD, "running"), stopping=True).calm(BOOT)
    assert not local_service(container(OLD, "running"), armed=OLD, phase=Phase.BAKE).calm(BOOT)


def test_a_service_is_not_calm_while_an_end_is_unexplained_or_a_start_is_watched_or_lacks_memory() -> None:
    assert not resting(container(OLD, "exited")).calm(BOOT)
    watched, lacking = resting(container(OLD, "running")), resting(container(OLD, "running"))
    watched.start("old").run.watch = threading.Event()
    lacking.start("old").lacking_s = 1.0

    assert not watched.calm(BOOT)
    assert not lacking.calm(BOOT)


def test_a_blocked_start_is_named_for_whoever_asks_what_waits() -> None:
    service = local_service(container(NEW))
    blocked = replace(NOW, blocked=True)
    assert (next_task(service, blocked), next_start(service, blocked)) == (None, "new")
    service.update({"new": container(NEW, "running")}, 2.0)
    assert next_start(service, blocked) == ""


@pytest.mark.parametrize(
    ("mode", "phase", "why"),
    [
        (Mode.BESIDE, Phase.PREPARE, "the swap of chat to new is in phase 'prepare'"),
        (Mode.BESIDE, Phase.VERIFY, "the swap of chat to new is in phase 'verify'"),
        (Mode.BESIDE, Phase.SWITCH, ""),
        (Mode.IN_PLACE, Phase.BAKE, "the swap of chat to new is in phase 'bake'"),
        (Mode.IN_PLACE, Phase.PROMOTE, ""),
    ],
)
def test_work_waits_as_long_as_a_swap_may_start_an_engine_here(mode: Mode, phase: Phase, why: str) -> None:
    began = Journal("chat", "n1", active=RELEASES[OLD]).begun("i1", mode, RELEASES[NEW], automatic=True)
    assert began.swap
    journal = replace(began, swap=replace(began.swap, phase=phase))
    service = LocalService("chat", "n1", Record(copy=journal, term=1), frozenset(), 0.0)
    service.update({"new": container(NEW, "running"), "old": container(OLD, "running")}, 1.0)
    for item in service.containers.values():
        service.run(item).note_health(Answer.YES)
    assert load_ahead(service, NOW) == why
    service.record = Record(copy=replace(journal, trouble="it needs an operator"), term=1)
    assert load_ahead(service, NOW) == "", "an operator must be able to build what ends the trouble"


def test_work_waits_for_an_engine_that_loads_or_is_about_to() -> None:
    service = local_service(container(NEW))
    assert load_ahead(service, NOW) == "new is about to start"
    service.update({"new": container(NEW, "running")}, 2.0)
    assert load_ahead(service, NOW) == "an engine of chat loads"


def test_a_swap_on_other_nodes_leaves_this_one_to_work() -> None:
    service = local_service()
    service.node = "n9"
    assert load_ahead(service, NOW) == ""
