"""What a follower prints of a change."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.operator.fleet.guards.narration import Narration
from sparkops.swap.model import Phase


def entered(phase: Phase, at_s: int, release: str = "q-2", replaces: str = "q-1") -> dict[str, Any]:
    at = f"2026-11-29T04:{at_s // 60:02}:{at_s % 60:02}+00:00"
    more = {"release": release, "replaces": replaces, "nodes": ["n2"], "mode": "across"}
    return {"kind": "phase", "phase": phase.value, "at": at, "text": f"{release}: {phase}", **more}


def event(kind: str, text: str) -> dict[str, Any]:
    return {"kind": kind, "text": text, "at": "2026-11-29T04:00:00+00:00"}


def lines(narration: Narration, *events: dict[str, Any]) -> list[str]:
    return [line for line in map(narration.line, events) if line]


def test_a_swap_is_a_line_for_each_thing_that_is_complete() -> None:
    narration = Narration()
    started = lines(
        narration,
        event("intent", "deploy accepted"),
        entered(Phase.PREPARE, 0),
        entered(Phase.START, 1),
        entered(Phase.LOAD, 2),
        entered(Phase.VERIFY, 750),
    )
    assert not narration.read("loading weights 40 %, about 3 min left")
    assert narration.read("4 of 11 checks passed")
    rest = lines(
        narration,
        entered(Phase.SWITCH, 756),
        event("traffic", "q-2 is active, in slot green"),
        entered(Phase.BAKE, 756),
        entered(Phase.PROMOTE, 816),
        entered(Phase.DRAIN, 816),
        entered(Phase.RETIRE, 817),
        event("end", "q-2 serves"),
    )

    assert started == ["q-2 replaces q-1 on n2, mode across", "started on n2, 12 min 30 s"]
    assert rest == ["11 checks passed, 6 s", "q-2 is active, in slot green", "watched for 1 min, no problem"]


def test_nothing_of_a_swap_that_fails_is_called_complete() -> None:
    narration = Narration()
    shown = lines(
        narration,
        entered(Phase.START, 0, replaces=""),
        entered(Phase.LOAD, 1, replaces=""),
        event("failure", "q-2-green-r0: the KV cache does not fit: 1 GiB of 2\n  24 lines of log; rolling back"),
        entered(Phase.DRAIN, 9, release="q-1", replaces="q-2"),
        event("end", "q-1 serves"),
    )

    assert shown == ["q-2 on n2, mode across", "q-2-green-r0: the KV cache does not fit: 1 GiB of 2; rolling back"]


@pytest.mark.parametrize("joined", [Phase.VERIFY, Phase.BAKE, Phase.PROMOTE])
def test_a_follower_that_joins_a_swap_tells_no_start_that_it_has_not_seen(joined: Phase) -> None:
    assert lines(Narration(), entered(joined, 5)) == []
