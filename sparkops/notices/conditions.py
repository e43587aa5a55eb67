"""States of a fleet that are told once they have lasted: from looks at them to the notices that begin and end. Pure.

Unknown is neither good nor bad: it begins nothing and ends nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from sparkops.notices.catalogue import CATALOGUE, Notice, NoticeState


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
    """Since when each state that is wrong has been so, by its key."""

    since_s: Mapping[str, float] = field(default_factory=dict)


def advance(conditions: Conditions, look: Look, told: Collection[Notice]) -> tuple[Conditions, tuple[Notice, ...]]:
    """Return the conditions after one more look, and the notices that are due.

    `told`: the begins of these codes that have no end yet. They outlast a restart of the guard, the clocks do not.
    """
    open_keys = {notice.key for notice in told}
    wrong = {notice.key: notice for notice in look.wrong}
    since_s = {key: conditions.since_s.get(key, look.at_s) for key in wrong}
    begins = (
        replace(notice, state=NoticeState.BEGINS)
        for key, notice in wrong.items()
        if key not in open_keys and look.at_s - since_s[key] >= CATALOGUE[notice.code].after_s
    )
    ends = (ended(notice) for notice in told if notice.key not in wrong and notice.key not in look.unknown)
    return Conditions(since_s), (*ends, *begins)


def ended(begun: Notice, why: str = "ended") -> Notice:
    """Return the notice that ends another one."""
    return replace(begun, state=NoticeState.ENDS, text=f"{why}: {begun.text}", next_step="")
