"""The smoke suite: findings, verdicts and the report of the checks in checks.py and claims.py. Pure.

A server that answers 200 proves nothing: engines answer garbage, hang behind a good /health, or print raw tags. A
release gets traffic only after `probe.passes` full passes in a row. A wrong answer is never retried; a failed
connection is retried once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sparkops.exchange import Reply, Request

KEEP_TEXT = 2000  # characters of a request or a response that the transcript keeps


@dataclass(frozen=True)
class CheckFinding:
    """The finding of a check. Without a `problem` it passed. `silent`: the server gave no complete answer."""

    problem: str = ""
    expected: str = ""
    got: str = ""
    note: str = ""
    silent: bool = False

    def __str__(self) -> str:
        parts = [self.problem, self.expected and f"expected {self.expected}", self.got and f"got {self.got}"]
        return "; ".join(part for part in parts if part) if self.problem else self.note


@dataclass(frozen=True)
class CheckVerdict:
    """A finding with its check, pass (1 is the first) and duration."""

    check: str
    number: int
    took_s: float
    finding: CheckFinding

    @property
    def ok(self) -> bool:
        return not self.finding.problem

    def __str__(self) -> str:
        result = "ok" if self.ok else "FAILED"
        return f"pass {self.number}  {self.check:<11} {result:<6} {self.took_s:7.2f} s  {self.finding}".rstrip()


@dataclass(frozen=True)
class Entry:
    """One request of the transcript. It never holds a header, so no key either."""

    check: str
    number: int
    at_s: float
    request: Request
    reply: Reply
    ok: bool


@dataclass(frozen=True)
class SmokeReport:
    """The result of a run of the suite: `passes` full passes in a row of `required` ones."""

    passes: int
    required: int
    verdicts: tuple[CheckVerdict, ...]
    transcript: tuple[Entry, ...]
    took_s: float

    @property
    def ok(self) -> bool:
        """Whether the server may have traffic."""
        return self.passes >= self.required

    @property
    def failed(self) -> tuple[CheckVerdict, ...]:
        """The checks that failed, in every pass."""
        return tuple(verdict for verdict in self.verdicts if not verdict.ok)

    @property
    def findings(self) -> tuple[str, ...]:
        """What failed, a check each."""
        return tuple(f"{verdict.check}: {verdict.finding}" for verdict in self.failed)

    @property
    def failure(self) -> str:
        """Why it may not; empty if it may."""
        failed, lines = self.failed, self.findings
        if not failed:
            return ""
        head = f"the smoke suite failed in pass {failed[0].number} of {self.required}: "
        return head + (lines[0] if len(lines) == 1 else "".join(f"\n    {line}" for line in lines))

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON, with long texts cut."""
        return {
            "ok": self.ok,
            "passes": self.passes,
            "wanted": self.required,
            "took_s": round(self.took_s, 2),
            "failure": self.failure,
            "verdicts": [_verdict(verdict) for verdict in self.verdicts],
            "transcript": [_entry(entry) for entry in self.transcript],
        }


def _verdict(verdict: CheckVerdict) -> dict[str, Any]:
    outcome = {"ok": verdict.ok, "took_s": round(verdict.took_s, 2), "reason": str(verdict.finding)}
    details = {key: value for key, value in asdict(verdict.finding).items() if key in ("expected", "got")}
    return {"check": verdict.check, "pass": verdict.number, **outcome, **details}


def _entry(entry: Entry) -> dict[str, Any]:
    request = {"method": entry.request.method, "path": entry.request.path, "body": _cut(entry.request.body)}
    reply = {"status": entry.reply.status, "body": _cut(entry.reply.body), "problem": entry.reply.problem}
    times = {"at_s": round(entry.at_s, 3), "took_s": round(entry.reply.took_s, 3)}
    outcome = {"ok": entry.ok, **times, "tries": entry.reply.tries, "parts": len(entry.reply.parts)}
    return {"check": entry.check, "pass": entry.number, **outcome, "request": request, "response": reply}


def _cut(value: Any) -> Any:
    """Return the same value with every long text cut."""
    match value:
        case Mapping():
            return {key: _cut(child) for key, child in value.items()}
        case list() | tuple():
            return [_cut(child) for child in value]
        case str() if len(value) > KEEP_TEXT:
            return f"{value[:KEEP_TEXT]}... ({len(value)} characters)"
        case _:
            return value
