"""A slow start with its clocks run ten times as fast; `make soak` lets one take its 12 min 30 s."""

from __future__ import annotations

import pytest

from tests.lab.soak import SILENT_S, START_S
from tests.real.service import Service

pytestmark = pytest.mark.fleet
FASTER = 10.0
STARTUP = {"stall_s": 180.0, "compile_stall_s": 300.0, "max_s": 1800.0}


@pytest.mark.matrix
def test_a_start_that_is_silent_for_longer_than_its_stall_clock_is_believed_while_it_works(service: Service) -> None:
    clocks = {f"probe__startup__{key}": f"{seconds / FASTER:g}" for key, seconds in STARTUP.items()}
    knobs = {"START_S": f"{START_S / FASTER:g}", "SILENT_S": f"{SILENT_S / FASTER:g}"}

    slow = service.deploy("--node", "node-1", name="slow", **knobs, **clocks)

    assert slow.code == 0, slow.err
