"""Why a start failed: the line that it began with, the known cause of that line, and the next step. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from sparkops.engines.causes import Advice, Cause
from sparkops.serving.startup import root
from sparkops.serving.startup.causes import DOCKER
from sparkops.serving.startup.root import LOGGED, OTHERS, OWN, Candidate, Entry, Level

CONTEXT = 20
"""Lines around a root that nothing explains."""
SHOWN = 500
"""Characters of a root that are shown."""
MOST = 80_000
"""Characters of a log that are compared with the catalogue: those of lines that report an error before other ones, from
the first on. A log of a failed start has 20,000; an engine's output may be anything, and a guard waits for this."""
LAST = 60
"""Lines at the end of a log in which a start that makes no progress says what it waits for."""
REASON = re.compile(
    r"\[Errno (?!2\])\d{1,4}\]|\bos error (?!2\b)\d{1,4}|Too many open files|No space left on device"
    r"|Disk quota exceeded|Permission denied|Read-only file system|Input/output error|Stale (?:NFS )?file handle"
    r"|Cannot allocate memory|No such device|Transport endpoint is not connected"
)
"""What the operating system reports of a failed call: it says more than what the call was for."""
REPORTED = re.compile(r"(?:docker: )?Error(?: response from daemon)?: |docker: ")
"""How Docker's client begins its error, after what it prints of its progress."""


@dataclass(frozen=True)
class Explanation:
    """Why a start failed, as far as its log says it."""

    root: str = ""
    """The line that the failure began with, without time and process; empty where the log shows no error."""
    number: int | None = None
    """Its place in the log."""
    advice: Advice | None = None
    of_others: bool = False
    """Whether the log only shows that another rank or process has ended."""
    known: Cause | None = None
    """The entry of the catalogue that explains the root."""

    def around(self, lines: Sequence[str]) -> Sequence[str]:
        """Return the lines around the root, most of them after it; the last ones where the log shows no error."""
        place = len(lines) - 1 if self.number is None else self.number
        first = max(0, min(place - CONTEXT // 4, len(lines) - CONTEXT))
        return lines[first : first + CONTEXT]


@dataclass(frozen=True)
class _Known:
    """A line that a cause of the catalogue explains."""

    candidate: Candidate
    cause: Cause
    match: re.Match[str]


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def explain(
    lines: Sequence[str], causes: Iterable[Cause], *, stalled: bool = False, served: bool = False
) -> Explanation:
    """Return why a start failed. `causes`: the engine's before those of the layers; the first for a line counts.

    `stalled`: it makes no progress or was killed, so that calm lines may tell why. `served`: it had become ready
    before, so that what it once waited for explains nothing.
    """
    read, listed = root.entries(lines), [*causes]
    found = root.candidates(read)
    first = min(found, key=lambda one: one.order, default=None)
    known = _first_known(read, found, listed)
    if known and _explains(known, first):
        return _explained(read, known)
    silent = first is None or first.rank == OTHERS
    waiting = _waiting(read, listed, stalled=stalled) if stalled or (silent and not served) else None
    if waiting and not _is_over(waiting, first):
        return _explained(read, waiting)
    if first is None or (stalled and first.followed):  # what a process survived does not keep it from going on
        return Explanation()
    number = root.told(read, first.entry.number)
    return Explanation(_shown(read[number]), number, None, first.rank == OTHERS)


def of_docker(printed: str) -> Advice | None:
    """Return the known cause in what a command of Docker printed, its last error first; None if unknown."""
    read = root.entries(printed.splitlines())
    last = max((entry.number for entry in read if REPORTED.match(entry.text)), default=0)
    found = (
        cause.advice(match, printed)
        for lines in (read[last:], read[:last])
        for cause in DOCKER  # first: the lines of one error are one message
        for entry in lines
        for _, match in _matches(entry.text, read, (cause,))
    )
    return next(found, None)


def _explained(read: Sequence[Entry], known: _Known) -> Explanation:
    entry = known.candidate.entry
    before = "\n".join(one.text for one in read[: entry.number + 1])
    advice = known.cause.advice(known.match, before)
    if known.cause.told_beside:
        entry = next((one for one in read if _compiled(known.cause.beside).search(one.text)), entry)
    return Explanation(_shown(entry), entry.number, advice, known.cause.of_others, known.cause)


def _shown(entry: Entry) -> str:
    return entry.text.strip()[:SHOWN]


def _first_known(read: Sequence[Entry], found: Sequence[Candidate], causes: Sequence[Cause]) -> _Known | None:
    """Return the first line whose cause is known; one about another process only where there is no other."""
    by_number = {one.entry.number: one for one in found}
    asked = [cause for cause in causes if not cause.quiet]
    known = [
        _Known(by_number.get(entry.number) or _of_message(entry, found), cause, match)
        for entry in _bounded(read, by_number)
        for cause, match in _matches(entry.text, read, asked)
    ]
    return min(known, key=_order, default=None)


def _order(one: _Known) -> tuple[bool, bool, bool, int]:
    found = one.candidate
    return found.followed, one.cause.of_others, found.rank == OTHERS, found.entry.number


def _bounded(read: Sequence[Entry], found: dict[int, Candidate]) -> Iterator[Entry]:
    """Yield the lines that may tell a cause, up to MOST characters."""
    left = MOST
    for entry in sorted((one for one in read if _may_tell(one, found)), key=lambda one: one.number not in found):
        left -= len(entry.text)
        if left < 0:
            return
        yield entry


def _may_tell(entry: Entry, found: dict[int, Candidate]) -> bool:
    """Return whether a line may tell a cause: a message, not a frame of a traceback, nor what was logged calmly."""
    if entry.code or not entry.text.strip():
        return False
    return entry.number in found or entry.level in (Level.PLAIN, Level.ERROR)


def _of_message(entry: Entry, found: Sequence[Candidate]) -> Candidate:
    """Return a line of a longer message as a candidate, which is caught if the line before it is."""
    before = next((one for one in reversed(found) if one.entry.number < entry.number), None)
    near = before is not None and entry.number - before.entry.number < 40
    return Candidate(entry, LOGGED, bool(before and near and before.followed))


def _matches(text: str, read: Sequence[Entry], causes: Iterable[Cause]) -> Iterator[tuple[Cause, re.Match[str]]]:
    """Yield the first cause that matches a line; one for the system's reason in it before one for what failed."""
    reasons = [match.span() for match in REASON.finditer(text)]
    first: tuple[Cause, re.Match[str]] | None = None
    for cause in causes:
        match = _compiled(cause.pattern).search(text)
        if match is None or (cause.unless and _compiled(cause.unless).search(text)):
            continue
        if cause.beside and not any(_compiled(cause.beside).search(other.text) for other in read):
            continue
        if not reasons or any(start < match.end() and match.start() < end for start, end in reasons):
            yield cause, match
            return
        first = first or (cause, match)
    if first:
        yield first


def _explains(known: _Known, first: Candidate | None) -> bool:
    """Return whether a known line explains the failure: none before it is an error of its own that is unknown.

    A line whose process went on calmly was caught, and explains nothing.
    """
    if known.candidate.followed:
        return False
    if known.candidate.rank == OTHERS and first is not None and first.rank == OWN and not first.followed:
        return False  # an error below it is unknown
    if first is None or first.followed or known.candidate.entry.number <= first.entry.number:
        return True
    return first.rank > OWN or known.candidate.rank > OWN or known.candidate.chain == first.chain != 0


def _waiting(read: Sequence[Entry], causes: Sequence[Cause], *, stalled: bool) -> _Known | None:
    """Return the last line that says what a start waits for; of one that ended, only if nothing went on after it."""
    waits = [cause for cause in causes if cause.quiet]
    for entry in reversed(read[-LAST:]):
        for cause, match in _matches(entry.text, read, waits):
            if cause.until and any(_compiled(cause.until).search(later.text) for later in read[entry.number :]):
                continue
            return _Known(Candidate(entry, LOGGED, followed=False), cause, match)
        if not stalled and entry.level is Level.CALM and not entry.text.startswith("NCCL "):
            return None
    return None


def _is_over(waiting: _Known, first: Candidate | None) -> bool:
    """Return whether a start failed by an error of its own after it had waited."""
    if first is None or first.rank != OWN or first.followed:
        return False
    return first.entry.number > waiting.candidate.entry.number
