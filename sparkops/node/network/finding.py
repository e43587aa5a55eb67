"""Problems of nodes and their network, each with its next step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from sparkops.errors import PlanRefused, joined


class Severity(StrEnum):
    PROBLEM = "problem"
    """Something does not work."""
    WARNING = "warning"
    """It works, and may fail, or is slower than it could be."""


class Finding(BaseModel):
    """One problem."""

    model_config = ConfigDict(frozen=True)

    code: str
    """Stable name, such as LINK_DOWN."""
    node: str
    """Name of the node; of a link, that of the end to fix."""
    problem: str
    """The problem, with measured values."""
    next_step: str
    """The next step."""
    severity: Severity = Severity.PROBLEM
    """A `problem` stops a deploy, a `warning` does not."""
    reason: str = ""
    """Reason why it matters, in the output of doctor."""
    fixable: bool = False
    """Whether `sparkops doctor --fix` can fix it."""


@dataclass(frozen=True)
class Kind:
    """Code, reason and severity of a finding. docs/doctor.md lists the kinds."""

    code: str
    why: str
    """Why it matters, with its source unless it is a rule of sparkops."""
    severity: Severity = Severity.PROBLEM

    def at(
        self, node: str, problem: str, step: str, *, severity: Severity | None = None, fixable: bool = False
    ) -> Finding:
        """Return a finding of this kind on a node, by default with the severity of the kind."""
        return Finding(
            code=self.code,
            node=node,
            problem=problem,
            next_step=step,
            severity=severity or self.severity,
            reason=self.why,
            fixable=fixable,
        )


@dataclass(frozen=True)
class Same:
    """A value that must be the same on all nodes. `what` names it in a sentence, `step` is the next step."""

    kind: Kind
    what: str
    step: str

    def check(self, values: Mapping[str, str]) -> Iterator[Finding]:
        """Yield a finding if the values, by node, differ."""
        if len(set(values.values())) > 1:
            measured = ", ".join(f"{value} at {node}" for node, value in values.items())
            problem, last = f"{self.what} differs: {measured}", list(values)[-1]
            yield self.kind.at(last, problem, self.step)


def problems(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that stop a deploy."""
    return tuple(finding for finding in findings if finding.severity is Severity.PROBLEM)


def require(findings: Iterable[Finding]) -> None:
    """Raise PlanRefused, or NodesFailed for several, if any finding is a problem."""
    if blocking := problems(findings):
        raise joined([PlanRefused(f"{item.node}: {item.problem}", next_step=item.next_step) for item in blocking])


def listed(values: Iterable[object]) -> str:
    """Return values in one line of a message."""
    return ", ".join(map(str, values)) or "none"
