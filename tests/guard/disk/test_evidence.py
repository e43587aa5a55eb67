"""The evidence of a failure is read within a bound: the node may lack memory."""

from __future__ import annotations

import json
from typing import Any

from sparkops.guard.follow.engines import LOG_BYTES, LOG_CHARACTERS, Engines
from tests.node.test_docker_api import TTY, ApiNode


def test_of_a_log_with_long_lines_the_evidence_has_fewer() -> None:
    sizes = iter((LOG_BYTES + 1, LOG_BYTES))
    answers = {"_ping": lambda: b"OK", "json": lambda: json.dumps(TTY).encode(), "logs": lambda: b"x" * next(sizes)}
    node: Any = ApiNode(answers)

    files = Engines(node, lambda *_: None, print).evidence("c")

    assert len(files["log.txt"]) == LOG_CHARACTERS
    assert sum("/logs?" in path for path in node.asked) == 2
