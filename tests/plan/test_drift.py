"""Which disagreements status names from the journals."""

from __future__ import annotations

from typing import Any

from sparkops.plan import drift
from sparkops.plan.journal import Holder, Journal, Mode, Phase, Swap, Verdict
from sparkops.plan.seen import Seen
from tests.plan.places import GATEWAY, placed

SWAP = Swap(deploy="d1", mode=Mode.ACROSS, gateway=GATEWAY, green=placed("new", "green", "n2"), phase=Phase.BAKE)
HELD = Holder(owner="ann@desk", deploy="d1", renewed_s=0.0, boot="b")


def found(**journals: dict[str, Any]) -> list[tuple[str, str, str]]:
    seen = Seen("chat", (), None, "n1", {node: Journal(service="chat", **keys) for node, keys in journals.items()})
    return [(each.code, each.node, each.detail) for each in drift.of_service(seen)]


def test_a_swap_that_somebody_holds_or_that_waits_for_promotion_is_no_drift() -> None:
    assert found(n1={"swap": SWAP, "holder": HELD}, n2={"swap": SWAP, "holder": HELD}) == []
    waits = SWAP.model_copy(update={"waiting": True})
    assert found(n1={"swap": waits}, n2={"swap": waits}) == []


def test_a_swap_that_was_left_is_named_once_with_what_happens_to_it() -> None:
    left = ("UNFINISHED_SWAP", "n2", "chat: the swap to new was left in phase bake; deploy it again")
    assert found(n1={"swap": SWAP}, n2={"swap": SWAP}) == [left]
    decided = SWAP.model_copy(update={"verdict": Verdict.REVERT})
    (only,) = found(n1={"swap": decided}, n2={"swap": SWAP})
    assert only[2].endswith("was left in phase bake; the guards revert it")


def test_a_node_that_missed_the_end_of_a_swap_is_named() -> None:
    (only,) = found(n1={}, n2={"swap": SWAP})
    assert only[:2] == ("UNFINISHED_SWAP", "n2")
    assert "n2 has not heard how the swap to new ended" in only[2]


def test_what_a_guard_could_not_do_needs_a_person_wherever_it_is() -> None:
    (only,) = found(n1={}, n2={"trouble": "the guard of n2 has tried 3 times: no memory"})
    assert only[:2] == ("NEEDS_PERSON", "n2")
    assert "no memory; next: sparkops logs chat, sparkops rollback chat" in only[2]
