"""Which disagreements status names from the journals."""

from __future__ import annotations

from typing import Any

from sparkops.facts.gateway import ServiceFacts, SlotFacts
from sparkops.plan import drift
from sparkops.plan.journal import Holder, Journal, Mode, Phase, Swap, Verdict
from sparkops.plan.seen import RankReport, Seen
from sparkops.release import Slot
from sparkops.render.gateway import backend
from tests.examples import container, rank
from tests.plan.places import GATEWAY, placed

SWAP = Swap(deploy="d1", mode=Mode.ACROSS, gateway=GATEWAY, green=placed("new", "green", "n2"), phase=Phase.BAKE)
HELD = Holder(owner="ann@desk", deploy="d1", renewed_s=0.0, boot="b")


def found(**journals: dict[str, Any]) -> list[tuple[str, str, str]]:
    seen = Seen("chat", (), None, "n1", {node: Journal(service="chat", **keys) for node, keys in journals.items()})
    return [(each.code, each.node, each.detail) for each in drift.of_service(seen)]


def test_a_release_with_the_traffic_that_does_not_run_is_reported_on_its_node() -> None:
    """The ranks of other releases come first, and run."""
    active, other = rank("n2"), rank("n1", model={"revision": "other"})
    slot = SlotFacts("chat", Slot.BLUE, active.release.id, active.release.id, ("10.0.0.2:8001",))
    name = backend("chat", Slot.BLUE)
    front = ServiceFacts("chat", 8000, name, name, {Slot.BLUE: slot})
    ranks = (RankReport(container(other)), RankReport(container(active, state="exited", exit_code=1)))

    def live_not_running(*reports: RankReport) -> list[tuple[str, str]]:
        drifts = drift.of_service(Seen("chat", reports, front, "n1"))
        return [(found.node, found.detail) for found in drifts if found.code == "LIVE_NOT_RUNNING"]

    detail = f"chat: {active.release.id} has the traffic and does not run"
    assert live_not_running(*ranks) == [("n2", detail)]
    assert live_not_running(ranks[0]) == [("", detail)]


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
