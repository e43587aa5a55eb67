"""What a look at nodes found wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from sparkops.errors import NodesFailed, PlanRefused


class Severity(StrEnum):
    """How much it matters."""

    PROBLEM = "problem"
    """Something does not work, or will not."""
    WARNING = "warning"
    """It works, and may stop to, or is slower than it could be."""


class Finding(BaseModel):
    """One thing that is not as it should be."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    code: str
    """A word for it that stays the same, such as LINK_DOWN."""
    node: str
    """Name of the node; of a link, that of the end where it is to be mended."""
    problem: str
    """What is wrong."""
    next_step: str
    """What to do about it."""
    severity: Severity = Severity.PROBLEM
    """Whether it stops a deploy."""


def problems(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that stop a deploy."""
    return tuple(each for each in found if each.severity is Severity.PROBLEM)


def require(found: Iterable[Finding]) -> None:
    """Raise PlanRefused, or NodesFailed with several of them, if anything found is a problem."""
    errors = [PlanRefused(f"{each.node}: {each.problem}", next_step=each.next_step) for each in problems(found)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise NodesFailed(errors)
