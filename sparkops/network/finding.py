"""What a look at nodes found wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from sparkops.errors import PlanRefused, joined


class Severity(StrEnum):
    """How much it matters."""

    PROBLEM = "problem"
    """Something does not work, or will not."""
    WARNING = "warning"
    """It works, and may stop to, or is slower than it could be."""


class Finding(BaseModel):
    """One thing that is not as it should be."""

    model_config = ConfigDict(frozen=True)

    code: str
    """A word for it that stays the same, such as LINK_DOWN."""
    node: str
    """Name of the node; of a link, that of the end where it is to be mended."""
    problem: str
    """What is wrong, with what was measured or read."""
    next_step: str
    """What to do about it."""
    severity: Severity = Severity.PROBLEM
    """Whether it stops a deploy."""
    reason: str = ""
    """Why it matters, where doctor reports it."""
    fixable: bool = False
    """Whether `sparkops doctor --fix` can take the next step."""


@dataclass(frozen=True)
class Same:
    """Something that must be alike on all nodes. `what` names it in a sentence, `step` makes it so."""

    code: str
    what: str
    step: str
    severity: Severity = Severity.PROBLEM

    def check(self, values: Mapping[str, str]) -> Iterator[Finding]:
        """What differs between nodes; `values` is by node."""
        if len(set(values.values())) > 1:
            measured = ", ".join(f"{value} at {node}" for node, value in values.items())
            problem, last = f"{self.what} differs: {measured}", list(values)[-1]
            yield Finding(code=self.code, node=last, problem=problem, next_step=self.step, severity=self.severity)


def problems(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that stop a deploy."""
    return tuple(finding for finding in findings if finding.severity is Severity.PROBLEM)


def require(findings: Iterable[Finding]) -> None:
    """Raise PlanRefused, or NodesFailed with several of them, if anything found is a problem."""
    errors = [
        PlanRefused(f"{finding.node}: {finding.problem}", next_step=finding.next_step) for finding in problems(findings)
    ]
    if errors:
        raise joined(errors)
