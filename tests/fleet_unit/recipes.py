"""Recipes whose swap takes no time."""

from __future__ import annotations

from typing import Any

from sparkops.config.recipe import Recipe
from sparkops.serving.smoke import coverage
from tests import examples
from tests.fleet_unit.machine import ANSWER


def recipe(base: int, version: str, **changes: Any) -> Recipe:
    """A recipe whose engine is believed after one question; nothing in its swap takes time."""
    off = {name: {"enabled": False} for name in coverage.CHECKS}
    questions = {"prompts": [{"prompt": "What is 17*23?", "expect": ANSWER}], "max_wrong": 0}
    swap = {"bake_s": 0, "drain_s": 0, "keep_old_s": 0, "reserve_gib": 0, "memory_timeout_s": 0.2}
    pair = {"tensor_parallel": 2, "executor": "mp", **changes.pop("serve", {})} if changes.pop("pair", False) else {}
    return examples.recipe(
        engine="vllm" if pair else "stand-in",
        serve={"port": base, "env": {"VERSION": version}, **pair},
        memory={"claim_gib": changes.pop("claim_gib", 60.0)},
        swap={**swap, **changes.pop("swap", {})},
        probe={"passes": 1, "startup": {"max_s": 3.0}, "smoke": {**off, "health": {}, "questions": questions}},
        **changes,
    )
