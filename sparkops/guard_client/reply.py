"""A guard's reply to an operator's request: a line of JSON, or why it is none. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkops.errors import Busy, NeedsOperator, NodeError, PlanRefused, SparkopsError


def unfit(op: str, line: str, limit: int) -> str:
    """Return why a line is no reply of at most `limit` characters; empty for one."""
    if len(line) > limit:
        return f"the guard's reply to `{op}` has more than {limit} characters"
    if line and not line.startswith("{"):
        return f"the guard could not be asked `{op}`: {line.strip()}"
    return "" if line.endswith("\n") else f"the guard ended before it replied to `{op}`"


def refusal(node: str, reply: Mapping[str, Any]) -> SparkopsError:
    """Return the error that a guard replied, with its exit code."""
    kinds = {kind.exit_code: kind for kind in (Busy, PlanRefused, NeedsOperator)}
    if kind := kinds.get(reply["exit_code"]):
        return kind(f"{node}: {reply['error']}", next_step=reply["next_step"])
    error = NodeError(node, reply["error"], next_step=reply["next_step"])
    error.exit_code = reply["exit_code"]
    return error
