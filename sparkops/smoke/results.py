"""The smoke suite: what a check finds, and what its findings mean. Pure.

smoke/coverage.py says which checks a recipe calls for, smoke/checks.py and smoke/claims.py are the checks.

A server that answers 200 proves nothing: engines answer garbage, hang behind a good /health, or talk in raw tags.
A release may have traffic only after `probe.passes` full passes of these checks in a row. A wrong answer is never
asked for again; only a connection that fails is tried twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sparkops.exchange import Reply, Request

KEEP_TEXT = 2000  # characters of a request or a response that the transcript keeps
STOP_AFTER = {"health", "models", "warm_up"}  # where these fail, every later check would say the same less clearly


@dataclass(frozen=True)
class CheckFinding:
    """What a check found. Without a `problem` all is well. `silent`: the server gave no whole answer."""

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
    """A finding, by which check, in which pass (1 is the first), and how long it took."""

    check: str
    number: int
    took_s: float
    finding: CheckFinding

    @property
    def ok(self) -> bool:
        """Whether the check passed."""
        return not self.finding.problem

    def __str__(self) -> str:
        how = "ok" if self.ok else "FAILED"
        return f"pass {self.number}  {self.check:<11} {how:<6} {self.took_s:7.2f} s  {self.finding}".rstrip()

    @property
    def ends(self) -> bool:
        """Whether nothing more can be learned by asking on."""
        return not self.ok and (self.finding.silent or self.check in STOP_AFTER)


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
    """How a run of the suite ended: `passes` full passes in a row of `wanted`."""

    passes: int
    wanted: int
    verdicts: tuple[CheckVerdict, ...]
    transcript: tuple[Entry, ...]
    took_s: float

    @property
    def ok(self) -> bool:
        """Whether the server may have traffic."""
        return self.passes >= self.wanted

    @property
    def failure(self) -> str:
        """Why it may not, in words; empty if it may."""
        failed = [verdict for verdict in self.verdicts if not verdict.ok]
        if not failed:
            return ""
        lines = [f"{verdict.check}: {verdict.finding}" for verdict in failed]
        head = f"the smoke suite failed in pass {failed[0].number} of {self.wanted}: "
        return head + (lines[0] if len(lines) == 1 else "".join(f"\n    {line}" for line in lines))

    def as_json(self) -> dict[str, Any]:
        """The whole report as JSON, with long texts cut."""
        return {
            "ok": self.ok,
            "passes": self.passes,
            "wanted": self.wanted,
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
    """The same value with every long text cut, so that its shape can still be read."""
    match value:
        case Mapping():
            return {key: _cut(child) for key, child in value.items()}
        case list() | tuple():
            return [_cut(child) for child in value]
        case str() if len(value) > KEEP_TEXT:
            return f"{value[:KEEP_TEXT]}... ({len(value)} characters)"
        case _:
            return value
