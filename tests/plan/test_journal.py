"""Who may change what is intended for a service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkops.plan import lock as rules
from sparkops.plan.journal import Holder, Journal, Mode, Phase, Swap
from sparkops.plan.lock import LEASE_S, RENEW_S, Clock, Refusal
from tests.plan.places import GATEWAY, placed

CLOCK = Clock(1000.0, "boot-1")
FREE = Journal(service="chat", generation=4)
SWAP = Swap(deploy="d1", mode=Mode.BESIDE, gateway=GATEWAY, green=placed("new", "green"), phase=Phase.LOAD)


def later(seconds: float) -> Clock:
    return replace(CLOCK, now_s=CLOCK.now_s + seconds)


REBOOTED = Clock(5.0, "boot-2")


def changed(done: Journal | Refusal) -> Journal:
    assert isinstance(done, Journal), done
    return done


def refused(done: Journal | Refusal) -> str:
    assert isinstance(done, Refusal), done
    return done.why


def held(**changes: object) -> Journal:
    holder = Holder(owner="ann@desk", deploy="d1", renewed_s=CLOCK.now_s, boot=CLOCK.boot, since_s=CLOCK.now_s)
    return FREE.model_copy(update={"holder": holder, **changes})


def test_who_takes_a_free_lock_holds_it_from_now_on_and_the_generation_grows() -> None:
    taken = changed(rules.acquire(FREE, "ann@desk", "d1", CLOCK))

    assert taken == held(generation=5)


def test_an_engine_loads_until_it_gets_the_traffic() -> None:
    holder = Holder(owner="ann@desk", deploy="d1", renewed_s=CLOCK.now_s, boot=CLOCK.boot, loads=True)
    phases = (Phase.LOAD, Phase.VERIFY, Phase.SWITCH, Phase.BAKE)
    journals = [FREE, *(FREE.model_copy(update={"swap": SWAP.model_copy(update={"phase": phase})}) for phase in phases)]

    held = [journal.model_copy(update={"holder": holder}) for journal in journals]

    assert [rules.loading(journal, CLOCK, "n1") for journal in held] == [True, True, True, False, False]


def test_a_held_lock_is_refused_with_its_holder_and_when_the_lease_ends() -> None:
    why = refused(rules.acquire(held(), "bob@lap", "d2", later(20)))

    assert why == f"chat: locked by ann@desk for 20 s; lease ends in {LEASE_S - 20:.0f} s"


def test_the_refusal_names_verb_and_process_where_they_are_known() -> None:
    taken = changed(rules.acquire(FREE, "ann@desk", "d1", CLOCK, run="deploy, pid 4711"))
    renewed = changed(rules.renew(taken, 5, later(RENEW_S)))

    assert rules.locked(renewed, later(20)) == (
        f"chat: locked by ann@desk (deploy, pid 4711) for 20 s; lease ends in {LEASE_S - 20 + RENEW_S:.0f} s"
    )
    assert (rules.locked(FREE, CLOCK), rules.locked(renewed, later(RENEW_S + LEASE_S))) == ("", "")


def test_a_journal_of_an_older_version_does_not_say_since_when_the_lock_is_held() -> None:
    holder = Holder(owner="ann@desk", deploy="d1", renewed_s=CLOCK.now_s, boot=CLOCK.boot)

    assert rules.locked(held(holder=holder), CLOCK) == "chat: locked by ann@desk; lease ends in 90 s"
    assert rules.held_s(holder, CLOCK) is None


def test_the_refusal_names_the_phase_of_the_swap_under_way() -> None:
    why = refused(rules.acquire(held(swap=SWAP), "bob@lap", "d2", CLOCK))

    assert why == "chat: locked by ann@desk for 0 s, phase load; lease ends in 90 s"


@pytest.mark.parametrize(
    ("clock", "left"),
    [
        (CLOCK, LEASE_S),
        (later(30), LEASE_S - 30),
        (later(LEASE_S - 0.5), 0.5),
        (later(LEASE_S), 0.0),
        (later(10 * LEASE_S), 0.0),
        (REBOOTED, 0.0),
        (Clock(CLOCK.now_s, "boot-2"), 0.0),
    ],
)
def test_a_lease_ends_with_its_time_or_with_the_node_s_boot(clock: Clock, left: float) -> None:
    assert rules.lease_left(held(), clock) == left
    assert isinstance(rules.acquire(held(), "bob@lap", "d2", clock), Refusal) is (left > 0)


def test_a_lock_that_nobody_holds_has_no_lease() -> None:
    assert rules.lease_left(FREE, CLOCK) == 0.0


def test_a_takeover_raises_the_generation_and_keeps_what_was_intended() -> None:
    taken = changed(rules.acquire(held(swap=SWAP), "bob@lap", "d2", later(LEASE_S)))

    assert (taken.generation, taken.swap) == (5, SWAP)
    now_s = CLOCK.now_s + LEASE_S
    assert taken.holder == Holder(owner="bob@lap", deploy="d2", renewed_s=now_s, boot=CLOCK.boot, since_s=now_s)


def test_the_same_deploy_takes_its_own_lock_again_with_a_new_generation() -> None:
    assert changed(rules.acquire(held(), "ann@desk", "d1", later(1))).generation == 5


def test_a_service_on_hold_is_refused_with_the_reason_even_to_its_holder() -> None:
    why = "chat is on hold: the fan is replaced"

    for journal in (FREE, held()):
        frozen = journal.model_copy(update={"hold": "the fan is replaced"})
        assert refused(rules.acquire(frozen, "ann@desk", "d1", CLOCK)) == why


def test_a_renewal_moves_the_end_of_the_lease_and_nothing_else() -> None:
    renewed = changed(rules.renew(held(swap=SWAP), 4, later(RENEW_S)))

    assert rules.lease_left(renewed, later(RENEW_S)) == LEASE_S
    assert renewed.model_copy(update={"holder": None}) == FREE.model_copy(update={"swap": SWAP})
    assert renewed.holder is not None
    assert renewed.holder.deploy == "d1"


def test_a_lease_that_has_ended_goes_on_if_nobody_else_was_quicker() -> None:
    for clock in (later(10 * LEASE_S), REBOOTED):
        assert rules.lease_left(changed(rules.renew(held(), 4, clock)), clock) == LEASE_S


def test_who_gave_the_lock_back_can_neither_renew_it_nor_write() -> None:
    free = changed(rules.release(held(), 4))

    assert free == changed(rules.release(free, 4)) == FREE
    assert refused(rules.renew(free, 4, CLOCK)) == "the lock of chat was given back"
    assert refused(rules.put(free, held(swap=SWAP), 4)) == "the lock of chat was given back"


def test_the_holder_writes_what_is_intended_but_never_the_lock_itself() -> None:
    keeper = held(hold="look at it first")
    forged = Journal(service="chat", generation=99, holder=None, hold=None, swap=SWAP)

    assert changed(rules.put(keeper, forged, 4)) == keeper.model_copy(update={"swap": SWAP})


@pytest.mark.parametrize("generation", [-1, 0, 3, 5, 99])
def test_any_other_generation_is_refused_everywhere(generation: int) -> None:
    why = "another deploy has taken over chat"

    assert refused(rules.renew(held(), generation, CLOCK)) == why
    assert refused(rules.release(held(), generation)) == why
    assert refused(rules.put(held(), held(swap=SWAP), generation)) == why


def test_the_phases_are_in_the_order_in_which_they_are_done() -> None:
    assert [phase.order for phase in Phase] == list(range(11))
    assert Phase.FREE.order < Phase.START.order < Phase.VERIFY.order < Phase.SWITCH.order < Phase.PROMOTE.order


def test_a_journal_survives_its_own_text() -> None:
    whole = held(swap=SWAP, active=placed("old", "blue"), hold="a reason")

    assert Journal.model_validate_json(whole.model_dump_json()) == whole


# Two operators and one keeper: whatever they do in whatever order, the keeper lets one of them in at a time.

OPERATORS = ("ann", "bob")
Move = tuple[str, str | float]
MOVES = st.one_of(
    st.tuples(st.sampled_from(["acquire", "renew", "put", "release"]), st.sampled_from(OPERATORS)),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 20.0, LEASE_S - 1, LEASE_S, 500.0])),
    st.tuples(st.just("hold"), st.sampled_from(["on", "off"])),
    st.tuples(st.just("reboot"), st.just("")),
)


@dataclass
class Keeper:
    """A journal, its node's clock, and what each operator believes to be its generation."""

    journal: Journal = field(default_factory=lambda: Journal(service="chat"))
    clock: Clock = CLOCK
    believed: dict[str, int] = field(default_factory=dict)
    last: str = ""
    """Who took the lock last."""

    def move(self, move: Move) -> None:
        verb, of = move
        if isinstance(of, float):
            self.clock = replace(self.clock, now_s=self.clock.now_s + of)
        elif verb == "reboot":
            self.clock = Clock(0.0, f"{self.clock.boot}+")
        elif verb == "hold":
            self.journal = self.journal.model_copy(update={"hold": "wait" if of == "on" else None})
        else:
            self.ask(verb, of)

    def ask(self, verb: str, who: str) -> None:
        before, alive = self.journal, rules.lease_left(self.journal, self.clock) > 0
        done = self.answer(verb, who)
        if isinstance(done, Refusal):
            return
        if verb == "acquire":
            assert before.hold is None
            assert not alive or before.holder is None or before.holder.owner == who
            assert done.generation == before.generation + 1
            self.believed[who], self.last = done.generation, who
        if done != before:
            assert who == self.last, f"{who} changed the journal after {self.last} had taken the lock"
        assert done.generation >= before.generation
        assert done.hold == before.hold
        self.journal = done

    def answer(self, verb: str, who: str) -> Journal | Refusal:
        generation = self.believed.get(who, 0)
        if verb == "acquire":
            return rules.acquire(self.journal, who, f"deploy of {who}", self.clock)
        if verb == "renew":
            return rules.renew(self.journal, generation, self.clock)
        if verb == "release":
            return rules.release(self.journal, generation)
        return rules.put(self.journal, Journal(service="chat", active=placed(who, "blue")), generation)


def histories() -> Iterator[list[Move]]:
    """Sequences that matter most, whatever hypothesis finds."""
    late: list[Move] = [("acquire", "ann"), ("wait", LEASE_S), ("acquire", "bob")]
    for verb in ("put", "renew", "release"):
        yield [*late, (verb, "ann"), (verb, "bob")]


@given(st.lists(MOVES, max_size=30))
def test_no_sequence_of_moves_lets_a_stale_generation_change_anything(moves: list[Move]) -> None:
    keeper = Keeper()
    for move in moves:
        keeper.move(move)


@pytest.mark.parametrize("moves", list(histories()), ids=["put", "renew", "release"])
def test_who_was_taken_over_is_refused_and_who_took_over_is_not(moves: list[Move]) -> None:
    *before, stale, current = moves
    keeper = Keeper()
    for move in before:
        keeper.move(move)

    assert isinstance(keeper.answer(stale[0], "ann"), Refusal)
    assert isinstance(keeper.answer(current[0], "bob"), Journal)
