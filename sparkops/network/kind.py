"""A kind of finding: what is known about it before it is found anywhere. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.network.finding import Finding, Severity


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
