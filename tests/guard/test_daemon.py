"""The guard's threads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkops.guard.daemon import Daemon
from sparkops.guard.disk.state import State
from sparkops.guard.lead.operator_socket import ConnectionLeases, answer
from sparkops.node.local import LocalNode
from sparkops.node.survey import node_survey
from sparkops.swap.journal import SCHEMA

pytestmark = pytest.mark.unit


def test_a_bug_at_one_look_does_not_end_the_relief_of_memory(tmp_path: Path) -> None:
    lines: list[str] = []
    guard = Daemon(State(tmp_path), LocalNode("n1"), log=lines.append)
    looks: list[int] = []

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise RuntimeError("bug")
        guard.over.set()

    guard._repeat(look, 0.0)

    assert looks == [0, 1]
    [line] = lines
    assert "RuntimeError: bug" in line


def test_a_guard_replies_its_samples_to_an_operator_and_reports_none_to_status(tmp_path: Path) -> None:
    guard = Daemon(State(tmp_path), LocalNode("n1"))
    request = json.dumps({"op": "minutes", "format": SCHEMA}).encode()

    with ConnectionLeases() as leases:
        reply = answer(guard.sampler.verbs, request, leases)

    assert set(reply["ok"]) == {"now", "services"}
    assert "minutes" not in node_survey.replies(lambda _: "", 0, 0)
