"""The guard's threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.guard.daemon import Daemon
from sparkops.guard.disk.state import State
from sparkops.node.local import LocalNode

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
