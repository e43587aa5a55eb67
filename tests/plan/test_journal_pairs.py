"""A release of several ranks in the journal: on which nodes it is, and which of them load."""

from __future__ import annotations

import pytest

from sparkops.plan import lock
from sparkops.plan.journal import Journal, Mode, Phase, Place, Placed, Swap
from sparkops.plan.lock import Clock
from sparkops.plan.takeover import Duty, Part, Word, duty, part, word
from sparkops.release import Slot
from tests.plan.pairs import NEW, OLD, at
from tests.plan.places import GATEWAY

GREEN = at(NEW, Slot.GREEN, "n2", "n3")
BLUE = at(OLD, Slot.BLUE, "n2", "n3")
CLOCK = Clock(1000.0, "boot-1")
LATER = Clock(5.0, "boot-2")


def swap(phase: Phase = Phase.LOAD, mode: Mode = Mode.IN_PLACE, **changes: object) -> Swap:
    values = {"deploy": "d1", "mode": mode, "gateway": GATEWAY, "green": GREEN, "blue": BLUE, "phase": phase}
    return Swap.model_validate({**values, "deadline_s": 2000.0, "boot": CLOCK.boot, **changes})


def test_a_placed_pair_knows_its_ranks_in_order_and_which_is_on_a_node() -> None:
    assert GREEN.nodes == ("n2", "n3")
    assert [place.container[-3:] for place in GREEN.ranks] == ["-r0", "-r1"]
    assert GREEN.on("n3") == Place(node="n3", container=GREEN.workers[0].container)
    assert GREEN.on("n1") is None
    assert GREEN.where == f"n2/{GREEN.container}"


def test_a_journal_with_workers_is_read_back_as_it_was_written_and_one_without_is_of_one_rank() -> None:
    written = Journal(service="chat", swap=swap())
    alone = Placed.model_validate(BLUE.model_dump(exclude={"workers"}))

    assert Journal.model_validate_json(written.model_dump_json()) == written
    assert alone.nodes == ("n2",)


@pytest.mark.parametrize("node", ["n2", "n3"])
@pytest.mark.parametrize("phase", [Phase.START, Phase.LOAD, Phase.VERIFY])
def test_a_left_pair_loads_on_the_nodes_of_all_its_ranks(node: str, phase: Phase) -> None:
    assert lock.loading(Journal(service="chat", swap=swap(phase)), CLOCK, node)


@pytest.mark.parametrize(("node", "phase"), [("n1", Phase.LOAD), ("n3", Phase.ARM), ("n3", Phase.BAKE)])
def test_elsewhere_and_at_other_times_it_does_not(node: str, phase: Phase) -> None:
    assert not lock.loading(Journal(service="chat", swap=swap(phase)), CLOCK, node)


@pytest.mark.parametrize("node", ["n2", "n3"])
def test_after_the_reboot_of_a_rank_s_node_blue_s_rank_comes_back_there_by_itself(node: str) -> None:
    """In place, before the switch: green has ended, and blue was stopped. Of each rank the same is true."""
    assert duty(Journal(service="chat", swap=swap()), LATER, node) is Duty.REVERT
    assert duty(Journal(service="chat", swap=swap(Phase.BAKE)), LATER, node) is Duty.ASK


def test_every_node_of_a_pair_hears_the_same_word() -> None:
    told = word(Journal(service="chat", swap=swap(Phase.BAKE, verdict="revert", traffic_moved=True)), CLOCK)

    assert part(swap(Phase.BAKE), told) is Part.REVERT
    assert part(swap(Phase.BAKE), Word(active=GREEN.where)) is Part.FINISH, "the place of rank 0 is the release's"
