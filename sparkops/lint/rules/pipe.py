"""No script is run straight from the network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sparkops.lint.calls import SHELLS, Call
from sparkops.lint.finding import Found
from sparkops.lint.stages import StagedBuild

FETCHERS = frozenset({"curl", "wget", "aria2c"})
EVALUATES = SHELLS | {"eval", "source", "."}
INTERPRETERS = re.compile(r"python[0-9.]*|perl|ruby|node")
STDIN = frozenset({"-", "/dev/stdin"})
FIX = "fetch one release to a file, compare it by sha256sum -c, then run the file"


def check(build: StagedBuild) -> Iterator[Found]:
    """Each call that runs what curl or wget has just printed."""
    for call in (call for stage in build.stages for call in stage.calls):
        fetcher = _fetcher(call.before) if _reads_script(call) else None
        if not fetcher and call.program in EVALUATES:
            fetcher = _fetcher(call.inside)
        if fetcher:
            runs = f"{call.program} runs what {fetcher.program} prints, whatever the server sends today"
            yield Found(fetcher.line, f"{runs}, expected a file whose hash is checked before it runs", FIX)


def _reads_script(call: Call) -> bool:
    """Whether it runs what comes through its pipe."""
    operands = [word for word in call.argv[1:] if word in STDIN or not word.startswith("-")]
    if INTERPRETERS.fullmatch(call.program):
        return len(call.argv) == 1 or bool(STDIN & set(operands))
    return call.program in SHELLS and (not operands or operands[0] in STDIN or "-s" in call.argv)


def _fetcher(calls: Iterable[Call]) -> Call | None:
    return next((call for call in calls if call.program in FETCHERS), None)
