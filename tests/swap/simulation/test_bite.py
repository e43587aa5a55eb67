"""The lists of bite.py name changes that exist, and a change of a known fault is found."""

from __future__ import annotations

import pytest

from tests.swap.simulation.bite_list import EQUIVALENT, HANDWRITTEN
from tests.swap.simulation.checks import checks
from tests.swap.simulation.mutations import MODULES, mutations
from tests.swap.simulation.recording import record
from tests.swap.simulation.trial import judge

pytestmark = pytest.mark.local


def test_every_listed_change_is_a_change_of_the_machine() -> None:
    names = [mutation.name for mutation in mutations()]

    assert len(names) == len(set(names))
    assert set(EQUIVALENT) <= set(names)
    assert sum(": rule " in name for name in names) == len(HANDWRITTEN)


def test_a_handwritten_fault_is_found_by_a_scenario_that_sees_it() -> None:
    chosen = [check for check in checks() if check.name.startswith("test_an_order_of_an_earlier_boot")]
    recorded = [record(MODULES, check) for check in chosen]
    faults = {mutation.name: mutation for mutation in mutations(["follower"])}

    judged = judge(faults["follower.adopts: rule 5: a guard follows an order of an earlier boot"], recorded)
    unseen = judge(faults["follower._boot: rule 3: the boot record starts what an operator stopped"], recorded)

    assert (judged.check, judged.differ) == (chosen[0].name, 1)
    assert (unseen.check, unseen.differ) == ("", 0)
