"""Replicas are replaced one after another: the others serve, a failure stops at the first, and nothing else changes."""

from __future__ import annotations

import pytest

from sparkops.names import Slot
from sparkops.swap.effects import CutRequests, PointSlot, WriteJournal
from sparkops.swap.events import narrate
from sparkops.swap.intents import Deploy, Refused, Stop, fails
from sparkops.swap.journal import RESTARTS, Swap, present
from sparkops.swap.leader import step
from sparkops.swap.model import PHASES, Answer, Deployment, Limits, Mode, Phase, Replica
from sparkops.swap.orders import traffic
from sparkops.swap.rolling import next_step
from tests.swap.simulation import laws
from tests.swap.simulation.faults import ended
from tests.swap.simulation.scenarios import A, B, replicas
from tests.swap.simulation.sharing import replace
from tests.swap.simulation.states import canonical
from tests.swap.simulation.story import Story
from tests.swap.simulation.transitions import following, lasting
from tests.swap.simulation.views import Health

THREE, PAIRS = "rolling, three", "rolling pairs"


def swap_of(story: Story) -> Swap:
    assert story.journal.swap
    return story.journal.swap


def served(story: Story) -> list[str]:
    """The containers that the gateway sends requests to."""
    gateway = story.world.gateway
    return sorted(places[0][1] for places in gateway.site(gateway.active)[1])


def test_each_replica_is_replaced_while_the_others_serve() -> None:
    story, seen = Story.of(THREE), list[list[str]]()
    while story.step():
        if not seen or seen[-1] != served(story):
            seen.append(served(story))

    assert seen == [
        ["a1-r0", "a2-r0", "a3-r0"],
        ["a2-r0", "a3-r0"],
        ["a2-r0", "a3-r0", "b1-r0"],
        ["a3-r0", "b1-r0"],
        ["a3-r0", "b1-r0", "b2-r0"],
        ["b1-r0", "b2-r0"],
        ["b1-r0", "b2-r0", "b3-r0"],
    ]
    assert story.running == story.armed == seen[-1]
    assert story.journal.previous
    assert story.journal.previous.release == A
    assert [outcome.result for outcome in story.journal.outcomes] == ["done", "done"]


@pytest.mark.parametrize("turns", ["wrong", "hung", "loading"])
def test_a_bad_release_stops_at_the_first_replica_which_returns(turns: str) -> None:
    story = Story.of(THREE, turns=turns).settle()

    assert story.running == story.armed == served(story) == ["a1-r0", "a2-r0", "a3-r0"]
    assert [outcome.result for outcome in story.journal.outcomes] == ["done", "reverted"]
    assert not any(container.startswith("b2") for container, _ in story.world.starts)


def test_a_failure_at_a_later_replica_leaves_those_that_are_replaced() -> None:
    story = Story.of(THREE)
    while not (story.journal.swap and story.journal.swap.coming.nodes == {"n2"}):
        assert story.step()
    story.until(Phase.LOAD).fault("b2-r0 is stopped").settle()

    assert story.running == served(story) == ["a2-r0", "a3-r0", "b1-r0"]
    assert story.journal.active
    assert story.journal.active.release == B
    assert story.journal.previous
    assert story.journal.previous.release == A


def test_a_replica_keeps_its_requests_until_enough_others_serve() -> None:
    story = Story.of("rolling")
    story.fault("a3-r0 is stopped").until(Phase.QUIESCE)
    while story.world.machine("n3").existing("a3-r0").health is not Health.GOOD:
        assert served(story) == ["a2-r0", "a3-r0"]
        assert story.step()

    assert story.settle().running == ["b2-r0", "b3-r0"]


def test_a_release_that_may_miss_two_replicas_replaces_two_at_once() -> None:
    goal = replicas(B, "n1", "n2", "n3")
    goal = replace(goal, limits=Limits(min_serving=1))

    first = next_step(replicas(A, "n1", "n2", "n3"), goal)

    assert [rank.container for rank in first.ranks] == ["b1-r0", "b2-r0", "a3-r0"]
    assert next_step(first, goal) == goal


def test_the_requests_of_a_withdrawn_replica_end_before_it_stops() -> None:
    story = Story.of("rolling").until(Phase.QUIESCE)
    while not story.world.gateway.left:
        assert story.step()
    assert step(story.journal, story.world.fleet(story.world.leader)) is None

    late = replace(story.world.leader, sampled=True)

    assert step(story.journal, story.world.fleet(late)) == CutRequests(
        swap_of(story).rest or replicas(A, "n3"), left=True
    )


def test_a_stop_waits_for_the_requests_of_a_withdrawn_replica_too() -> None:
    story = Story.of("rolling").until(Phase.QUIESCE)
    while not story.world.gateway.left:
        assert story.step()
    assert story.ask(lambda id_, revision: Stop(id_, revision, force=True))

    assert story.settle().running == []


@pytest.mark.parametrize("where", ["dead", "garbled", "ended"])
def test_a_replica_that_only_the_leader_restarts_is_restarted_while_the_other_serves(where: str) -> None:
    story = Story.of("rolling").settle()
    if where != "ended":
        story.fault(f"b2-r0 is {'hung' if where == 'dead' else 'wrong'}")
    else:
        story.stop_by_hand("b2-r0")
    while story.step():
        assert "b3-r0" in served(story)

    assert story.running == (["b3-r0"] if where == "ended" else ["b2-r0", "b3-r0"])
    assert story.journal.restarts == (0 if where == "ended" else 1) <= RESTARTS
    assert not story.journal.trouble


@pytest.mark.parametrize("phase", PHASES[Mode.ROLLING])
def test_pairs_that_all_end_with_the_power_are_all_started_again(phase: Phase) -> None:
    story = Story.of(PAIRS).until(phase).fault("power cut")
    while story.step():
        assert not story.journal.trouble

    assert laws.live(story.world, intervened=False) == []
    assert len(served(story)) == 2


def test_pairs_that_have_lost_power_are_not_waited_for_by_the_one_that_would_leave() -> None:
    story = Story.of(PAIRS).until(Phase.QUIESCE).fault("power cut")
    while story.journal.restarts == 0:
        assert story.step()
        assert not story.world.leader.waited

    assert swap_of(story).restarts
    assert not swap_of(story).kept
    assert [item.why for item in story.journal.outcomes] == ["", "every replica of chat has ended"]


def test_the_reason_of_a_return_is_kept_where_every_pair_has_ended() -> None:
    story = Story.of(PAIRS).until(Phase.LOAD).fault("power cut").settle()

    assert "ended" in story.journal.outcomes[1].why
    assert "every replica" not in story.journal.outcomes[1].why


@pytest.mark.parametrize("phase", [Phase.FREE, Phase.WORKERS, Phase.START, Phase.LOAD])
def test_a_pair_serves_on_while_half_of_the_other_one_rests_and_half_is_unknown(phase: Phase) -> None:
    story = Story.of(PAIRS).until(phase).fault("Docker on n1 hangs")
    while transition := next(lasting(story.world), None):
        story.world = canonical(transition[1])
        assert story.world.gateway.active, transition[0]

    assert (story.journal.swap, story.journal.trouble) == (None, "")
    assert story.journal.outcomes[-1].why
    assert served(story.settle()) == ["a1-r0", "a3-r0"]


def test_a_replica_whose_restarts_are_spent_is_restarted_after_an_hour() -> None:
    story = Story.of(PAIRS).settle()
    spent = replace(story.journal, revision=story.journal.revision + 1, restarts=RESTARTS)
    story.world = story.world.with_leader(replace(story.world.leader, journal=spent))
    story.settle().fault("b1-r0 is hung").settle()
    assert story.journal.restarts == RESTARTS

    story.rest().settle()

    assert story.world.machine("n1").existing("b1-r0").health is Health.GOOD
    assert story.journal.restarts == 1


def test_a_return_finds_the_slot_as_the_swap_has_left_it() -> None:
    story = Story.of("rolling").until(Phase.LOAD).fault("b2-r0 is stopped")
    while not swap_of(story).reverting:
        assert story.step()

    fleet = story.world.fleet(story.world.leader)

    assert fleet.gateway
    assert fleet.gateway.answer(traffic(story.journal)) is Answer.YES


def test_more_replicas_leave_the_others_untouched() -> None:
    story = Story.of("one more")
    before = story.world.machine("n2")
    story.settle()

    assert served(story) == ["a2-r0", "a3-r0"]
    assert story.world.machine("n2").engines == before.engines
    assert story.journal.previous is None


def test_the_events_say_where_the_new_release_serves_and_how_many_follow() -> None:
    story, told = Story.of(THREE), list[str]()
    while True:
        before = story.journal
        if not story.step():
            break
        told += [
            event.text
            for event in narrate(before, story.journal)
            if "follow" in event.text or "is promoted" in event.text
        ]

    assert told == ["b serves on n1; 2 of 3 follow", "b serves on n2; 1 of 3 follow", "b is promoted"]


def test_a_rolling_update_needs_a_replica_that_stays_and_the_slot_of_the_active_release() -> None:
    story = Story.of("rolling").settle()
    elsewhere = replace(replicas("c", "n2", "n3"), slot=Slot.GREEN)
    at_once = replace(replicas("c", "n2", "n3"), replicas=(Replica((*replicas("c", "n2", "n3").ranks,)),))

    def refusal(target: Deployment) -> str:
        reply = story.reply(Deploy("i9", story.journal.revision, target, Mode.ROLLING))
        return reply.why if isinstance(reply, Refused) else ""

    assert refusal(elsewhere) == "slot blue is that of the active release"
    assert refusal(at_once) == "no replica serves while the others are replaced"
    assert refusal(replicas("c", "n2")) == ""


def test_a_lost_replica_is_given_up_by_a_rebuild_and_the_others_serve() -> None:
    story = Story.of("rolling at the gateway").settle().copied().fault("loss of n1").rebuild().settle()

    assert story.running == served(story) == ["b2-r0"]
    assert story.journal.active
    assert story.journal.active.nodes == {"n2"}


def test_the_slot_that_has_the_traffic_is_pointed_only_at_what_serves() -> None:
    story, pointed = Story.of(THREE), 0
    while True:
        effect = step(story.journal, story.world.fleet(story.world.leader))
        if isinstance(effect, PointSlot) and effect.deployment.slot is story.world.gateway.active:
            assert len(effect.deployment.replicas) >= 2
            pointed += 1
        if not story.step():
            break
    assert pointed >= 6


def test_the_next_replica_is_withdrawn_once_the_gateway_sends_requests_to_the_new_one() -> None:
    story = Story.of(THREE)
    while not (story.journal.swap and story.journal.swap.coming.nodes == {"n2"}):
        assert story.step()
    story.until(Phase.QUIESCE)
    while not isinstance(step(story.journal, story.world.fleet(story.world.leader)), PointSlot):
        assert story.step()
    fleet = story.world.fleet(story.world.leader)
    assert fleet.gateway

    unchecked = replace(fleet, gateway=replace(fleet.gateway, down=frozenset({("n1", "b1-r0")})))

    assert step(story.journal, unchecked) is None


def test_a_switch_lasts_until_the_gateway_sends_requests_to_the_new_replica() -> None:
    story = Story.of(THREE).until(Phase.SWITCH)
    while not isinstance(step(story.journal, story.world.fleet(story.world.leader)), WriteJournal):
        assert story.step()
    fleet = story.world.fleet(story.world.leader)
    assert fleet.gateway

    unchecked = replace(fleet, gateway=replace(fleet.gateway, down=frozenset({("n1", "b1-r0")})))

    assert step(story.journal, unchecked) is None


def test_a_release_that_may_miss_two_replicas_goes_on_while_one_of_those_that_stay_gets_no_requests() -> None:
    story = Story.of("rolling, two at once")
    while not (story.journal.swap and story.journal.swap.coming.nodes == {"n3"}):
        assert story.step()
    story.until(Phase.QUIESCE)
    while not isinstance(step(story.journal, story.world.fleet(story.world.leader)), PointSlot):
        assert story.step()
    fleet = story.world.fleet(story.world.leader)
    assert fleet.gateway

    one_down = replace(fleet, gateway=replace(fleet.gateway, down=frozenset({("n1", "b1-r0")})))

    assert isinstance(step(story.journal, one_down), PointSlot)


def test_a_return_does_not_stop_the_new_replica_while_no_other_one_serves() -> None:
    story = Story.of("rolling", automatic=False).until(Phase.BAKE)
    story.stop_by_hand("a3-r0")
    story.operator("cancel").settle()

    assert story.running == ["b2-r0"]
    assert "b2-r0" in served(story)


def test_a_stop_that_cannot_see_the_gateway_ends_no_swap_of_replicas() -> None:
    story = Story.of("rolling").until(Phase.LOAD)
    assert story.ask(lambda id_, revision: Stop(id_, revision, force=True))
    fleet = replace(story.world.fleet(story.world.leader), gateway=None, waited_s=1e9)

    effect = step(story.journal, fleet)

    assert isinstance(effect, WriteJournal)
    assert effect.journal.swap == story.journal.swap
    assert effect.journal.trouble


def test_an_update_of_pairs_goes_on_while_the_pair_that_stays_has_ended() -> None:
    story = Story.of(PAIRS).until(Phase.START).fault("a3-r1 is stopped").settle()

    assert story.running == ["b1-r0", "b1-r1", "b3-r0", "b3-r1"]
    assert story.journal.outcomes[-1].result == "done"


def test_a_pair_is_not_withdrawn_while_a_rank_of_the_other_one_has_ended() -> None:
    story = Story.of(PAIRS).until(Phase.QUIESCE).fault("a3-r1 is stopped")
    while story.journal.swap and not swap_of(story).restarts:
        assert "a1-r0" in served(story)
        assert story.step()


@pytest.mark.parametrize("fault", ["power cut", "a3-r0 is stopped"])
def test_single_replicas_that_all_end_in_a_return_are_started_by_it_and_their_guards(fault: str) -> None:
    story = Story.of("rolling").until(Phase.LOAD).fault("b2-r0 is stopped")
    while not swap_of(story).reverting:
        assert story.step()
    story.fault("Docker on n3 refuses to start").fault(fault).settle()

    assert story.running == served(story) == ["a2-r0", "a3-r0"]
    assert story.journal.restarts == 0


def test_a_replica_that_is_promoted_stays_although_its_node_is_cut_off() -> None:
    story = Story.of("rolling").until(Phase.PROMOTE).fault("cut link to n2")
    while transition := next(lasting(story.world), None):
        story.world = canonical(transition[1])
        assert not (story.journal.swap and story.journal.swap.reverting)

    assert (story.journal.swap, story.journal.trouble) == (None, "")
    assert story.journal.outcomes[-1].why == "no progress in phase 'promote'"
    assert story.journal.active
    assert [rank.container for rank in story.journal.active.ranks] == ["b2-r0", "a3-r0"]


def test_a_single_replica_that_ends_is_started_by_its_guard_alone() -> None:
    story = Story.of("rolling").settle().fault("b2-r0 is stopped").settle()

    assert story.running == ["b2-r0", "b3-r0"]
    assert story.journal.restarts == 0


def test_a_pair_of_which_a_rank_ends_is_restarted_without_a_wait() -> None:
    story = Story.of(PAIRS).settle().fault("b1-r1 is stopped")
    while story.journal.restarts == 0:
        assert "the watch" not in (following(story.world) or ("", None))[0]
        assert story.step()
        assert not story.world.leader.waited


def test_a_second_restart_of_a_replica_waits_for_its_pause() -> None:
    story = Story.of(PAIRS).settle().fault("b1-r1 is stopped")
    while not isinstance(step(story.journal, story.world.fleet(story.world.leader)), WriteJournal):
        assert story.step()
    once = replace(story.journal, restarts=1)

    assert step(once, replace(story.world.fleet(story.world.leader), rested_s=0.0)) is None


def test_a_replica_is_restarted_although_another_one_was_stopped_by_hand() -> None:
    story = Story.of(THREE).settle()
    story.stop_by_hand("b2-r0")
    story.fault("b1-r0 is hung").settle()

    assert story.running == [*served(story)[:1], "b3-r0"] == ["b1-r0", "b3-r0"]
    assert story.world.machine("n1").existing("b1-r0").health is Health.GOOD


def test_requests_in_a_replica_that_restarts_are_cut_at_once() -> None:
    story = Story.of(THREE).settle().fault("b1-r0 is hung")
    while not story.world.gateway.left:
        assert story.step()

    effect = step(story.journal, story.world.fleet(story.world.leader))

    assert isinstance(effect, CutRequests)
    assert effect.left


def test_a_new_replica_that_has_ended_is_no_downtime() -> None:
    story = Story.of("rolling").until(Phase.BAKE).fault("b2-r0 is stopped")
    while not (story.world.machine("n2").engine("b2-r0") and _reports_end(story, "b2-r0")):
        assert story.step()

    assert not fails(story.journal, story.world.fleet(story.world.leader))


def _reports_end(story: Story, container: str) -> bool:
    reports = (report.engine(container) for report in story.world.leader.reports if report.node == "n2")
    return any(not engine.state.running for engine in reports)


@pytest.mark.parametrize("phase", [Phase.QUIESCE, Phase.LOAD, Phase.SWITCH, Phase.BAKE, Phase.PROMOTE])
def test_a_rebuild_without_the_replica_that_is_replaced_keeps_the_other_one(phase: Phase) -> None:
    story = Story.of("rolling at the gateway").until(phase).copied().fault("loss of n1").rebuild().settle()

    assert story.running == served(story) == story.armed[-1:] == ["a2-r0"]
    assert story.journal.swap is None


@pytest.mark.parametrize(
    ("phase", "serves"),
    [
        (Phase.QUIESCE, "a2-r0"),
        (Phase.LOAD, "a2-r0"),
        (Phase.SWITCH, "a2-r0"),
        (Phase.BAKE, "a2-r0"),
        (Phase.PROMOTE, "b2-r0"),
    ],
)
def test_a_rebuild_without_the_replica_that_stays_ends_the_step_of_the_other_one(phase: Phase, serves: str) -> None:
    story = Story.of("rolling at the gateway")
    while not (story.journal.swap and story.journal.swap.coming.nodes == {"n2"}):
        assert story.step()
    story.until(phase).copied().fault("loss of n1").rebuild().settle()

    assert story.running == served(story) == [serves]
    assert story.journal.swap is None


@pytest.mark.parametrize(
    ("phase", "serves"),
    [
        (Phase.QUIESCE, "a2-r0"),
        (Phase.FREE, "a2-r0"),
        (Phase.VERIFY, "a2-r0"),
        (Phase.SWITCH, "b2-r0"),
        (Phase.PROMOTE, "b2-r0"),
    ],
)
def test_a_rebuild_without_one_of_two_that_are_replaced_at_once_goes_on_with_the_other_one(
    phase: Phase, serves: str
) -> None:
    story = Story.of("replicas in-place").until(phase).copied().fault("loss of n1").rebuild().settle()

    assert story.running == served(story) == [serves]
    assert (story.journal.swap, story.journal.trouble) == (None, "")


@pytest.mark.parametrize(
    ("phase", "serves"),
    [
        (Phase.QUIESCE, "a1-r0"),
        (Phase.FREE, "a1-r0"),
        (Phase.LOAD, "a1-r0"),
        (Phase.VERIFY, "a1-r0"),
        (Phase.SWITCH, "b1-r0"),
        (Phase.BAKE, "b1-r0"),
        (Phase.PROMOTE, "b1-r0"),
    ],
)
def test_of_two_that_are_replaced_at_once_one_serves_where_the_node_of_the_other_one_is_lost(
    phase: Phase, serves: str
) -> None:
    story = Story.of("replicas in-place").until(phase).copied().fault("loss of n2").settle()

    assert story.running == [serves]
    assert serves in served(story)
    assert (story.journal.swap, story.journal.trouble) == (None, "")
    assert present(story.journal.outcome("i1")).result == ("done" if serves == "b1-r0" else "reverted")


def test_a_return_of_two_ends_without_the_one_that_never_starts_again() -> None:
    story = Story.of("replicas in-place", turns="wrong").until(Phase.VERIFY)
    while not (swap_of(story).reverting and swap_of(story).phase is Phase.LOAD):
        assert story.step()
    loads = swap_of(story).key
    story.hang("a1-r0").settle()

    assert story.running == ["a1-r0", "a2-r0"]
    assert "a2-r0" in served(story)
    assert story.world.machine("n2").record.key("a2-r0") == loads  # it loaded once
    assert story.journal.trouble == ""


@pytest.mark.parametrize("phase", [Phase.FREE, Phase.WORKERS, Phase.LOAD, Phase.VERIFY])
def test_pairs_that_lost_power_are_started_without_the_one_whose_node_is_lost_meanwhile(phase: Phase) -> None:
    story = Story.of(PAIRS).settle().copied().fault("power cut")
    while not (story.journal.swap and swap_of(story).restarts and swap_of(story).phase is phase):
        assert story.step()
    story.fault("loss of n3").settle()

    assert set(story.running) >= {"b1-r0", "b1-r1"}
    assert "b1-r0" in served(story)
    assert not story.journal.swap
    assert story.journal.trouble == ""


def test_pairs_that_lost_power_are_started_without_the_one_that_is_lost_with_the_gateway() -> None:
    story = Story.of(PAIRS).settle().copied().fault("power cut")
    while not (story.journal.swap and story.journal.swap.restarts):
        assert story.step()
    story.copied().fault("loss of n1").rebuild().settle()

    assert story.running == ["b3-r0", "b3-r1"]
    assert not story.journal.swap
    assert story.journal.trouble == ""


@pytest.mark.parametrize("lost", ["b1-r0", "b2-r0"])
def test_a_rebuild_goes_on_with_the_restart_of_a_replica(lost: str) -> None:
    story = Story.of(THREE).settle().fault(f"{lost} is hung")
    while not (story.journal.swap and story.journal.swap.phase is Phase.LOAD):
        assert story.step()
    story.copied().fault("loss of n1").rebuild().settle()

    assert story.running == served(story) == ["b2-r0", "b3-r0"]
    assert story.journal.swap is None


@pytest.mark.parametrize("phase", [Phase.LOAD, Phase.PROMOTE])
def test_a_rebuild_that_loses_no_replica_returns_the_step_unless_it_is_promoted(phase: Phase) -> None:
    story = Story.of("rolling").until(phase).copied().fault("loss of n1").rebuild().settle()

    assert story.running == served(story) == (["a2-r0", "a3-r0"] if phase is Phase.LOAD else ["b2-r0", "b3-r0"])


def test_a_new_replica_that_hangs_after_its_checks_gets_no_requests() -> None:
    story = Story.of("rolling").until(Phase.SWITCH).fault("b2-r0 is hung").settle()

    assert story.running == served(story) == ["a2-r0", "a3-r0"]


def test_a_single_replica_whose_guard_cannot_start_it_is_restarted_after_a_wait() -> None:
    story = Story.of("rolling").settle().fault("Docker on n2 refuses to start").fault("b2-r0 is stopped")
    while not _reports_end(story, "b2-r0"):
        assert story.step()
    leader = story.world.leader

    assert step(story.journal, story.world.fleet(leader)) is None
    assert isinstance(step(story.journal, story.world.fleet(replace(leader, waited=True))), WriteJournal)


def test_a_restart_of_a_replica_that_is_given_up_keeps_its_reason() -> None:
    story = Story.of("rolling").settle().fault("Docker on n2 refuses to start").fault("b2-r0 is hung")
    while not (story.journal.restarts and story.journal.swap is None):
        transition = next(lasting(story.world), None)
        assert transition
        story.world = canonical(transition[1])

    assert story.journal.outcomes[-1].why == "dead"


def test_a_replica_that_serves_on_is_not_killed_for_memory() -> None:
    story = Story.of("rolling").until(Phase.LOAD)

    assert story.relieve("n3") == ""
    assert story.relieve("n2") == "b2-r0"


def test_a_slot_with_the_traffic_is_changed_once_another_guard_has_the_journal() -> None:
    story = Story.of("rolling").until(Phase.QUIESCE)
    while not isinstance(step(story.journal, story.world.fleet(story.world.leader)), PointSlot):
        assert story.step()
    fleet = story.world.fleet(story.world.leader)
    leader = story.journal.leader
    older = {name: item if name == leader else replace(item, revision=0) for name, item in fleet.reports.items()}

    assert step(story.journal, replace(fleet, reports=older)) is None
    assert step(story.journal, replace(fleet, gateway=None)) is None


def test_a_step_that_only_removes_a_replica_starts_and_verifies_nothing() -> None:
    story = Story.of("one less")
    assert swap_of(story).phase is Phase.QUIESCE
    assert swap_of(story).phases == (Phase.QUIESCE, Phase.FREE, Phase.SWITCH, Phase.PROMOTE)

    assert story.settle().running == served(story) == ["a3-r0"]


def test_a_return_of_a_replica_that_fails_each_time_ends_without_an_operator() -> None:
    story = Story.of("rolling")
    machine = story.world.machine("n2")
    bad = machine.holding(replace(machine.existing("a2-r0"), turns=Health.HUNG))
    story.world = canonical(story.world.with_machine(bad))
    story.until(Phase.LOAD).fault("b2-r0 is stopped")
    while story.journal.swap:
        assert story.step()

    assert story.journal.restarts == RESTARTS
    assert (story.journal.trouble, served(story)) == ("", ["a3-r0"])


def test_a_step_starts_no_more_replicas_than_may_be_missing_also_on_free_nodes() -> None:
    goal = replicas(B, "n4", "n5", "n6", min_serving=1)

    first = next_step(replicas(A, "n1", "n2", "n3"), goal)

    assert [rank.node for rank in first.ranks] == ["n4", "n5", "n1", "n2", "n3"]


def test_a_step_stops_no_more_replicas_than_may_be_missing_where_a_new_one_takes_two_nodes() -> None:
    goal = replicas(B, "n1+n2", "n3", min_serving=1)

    first = next_step(replicas(A, "n1", "n2", "n3"), goal)

    assert [rank.container for rank in first.ranks] == ["b1-r0", "b1-r1", "a3-r0"]


def test_a_step_counts_a_replica_once_whose_nodes_two_new_ones_take() -> None:
    goal = replicas(B, "n1", "n2", "n3+n4", "n5", min_serving=1)

    first = next_step(replicas(A, "n1+n2", "n3", "n4", "n5"), goal)

    assert [rank.container for rank in first.ranks] == ["b1-r0", "b2-r0", "b3-r0", "b3-r1", "a5-r0"]


def test_a_new_replica_gets_no_requests_while_it_is_unknown_whether_it_answers() -> None:
    story = Story.of("rolling").until(Phase.SWITCH)
    while not isinstance(step(story.journal, story.world.fleet(story.world.leader)), PointSlot):
        assert story.step()
    fleet = story.world.fleet(story.world.leader)
    assert fleet.gateway
    answers = {**fleet.gateway.answers, swap_of(story).proving.slot: Answer.UNKNOWN}

    assert step(story.journal, replace(fleet, gateway=replace(fleet.gateway, answers=answers))) is None


def test_a_return_that_is_retried_drains_the_replica_that_it_withdraws_again() -> None:
    story = Story.of("rolling", turns="wrong")
    while not (swap_of(story).reverting and swap_of(story).phase is Phase.SWITCH and len(served(story)) == 2):
        assert story.step()
    story.fault("cut link to n2")
    while swap_of(story).phase is not Phase.QUIESCE:
        assert story.step()
    story.world = canonical(next(after for label, after in ended(story.world) if label == "the link to n2 is back"))

    assert story.settle().running == served(story) == ["a2-r0", "a3-r0"]
