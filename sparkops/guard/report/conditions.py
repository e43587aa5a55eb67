"""States of a fleet that are told once they have lasted: from looks at them to the notices that begin and end. Pure.

Unknown is neither good nor bad: it begins nothing and ends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sparkops.swap.catalogue import CATALOGUE, Notice, NoticeState


@dataclass(frozen=True)
class Look:
    """What was seen at `at_s`, in seconds that only grow: what is wrong, and the keys of what is unknown.

    What is in neither is right.
    """

    at_s: float
    wrong: tuple[Notice, ...] = ()
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Conditions:
    """By key: since when each state that is wrong has been so, and the begins that have no end yet."""

    since_s: Mapping[str, float] = field(default_factory=dict)
    told: Mapping[str, Notice] = field(default_factory=dict)


def advance(conditions: Conditions, look: Look) -> tuple[Conditions, tuple[Notice, ...]]:
    """Return the conditions after one more look, and the notices that are due."""
    wrong = {notice.key: notice for notice in look.wrong}
    since_s = {key: conditions.since_s.get(key, look.at_s) for key in wrong}
    begins = {
        key: replace(notice, state=NoticeState.BEGINS)
        for key, notice in wrong.items()
        if key not in conditions.told and look.at_s - since_s[key] >= CATALOGUE[notice.code].after_s
    }
    kept = {key: notice for key, notice in conditions.told.items() if key in wrong or key in look.unknown}
    ends = (_ended(notice) for key, notice in conditions.told.items() if key not in kept)
    return Conditions(since_s, {**kept, **begins}), (*ends, *begins.values())


def _ended(begun: Notice) -> Notice:
    return replace(begun, state=NoticeState.ENDS, text=f"ended: {begun.text}", next_step="")
