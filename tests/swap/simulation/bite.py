"""Does the simulation bite? Delete each condition of the machine and swap each pair of effects, one at a time.

Every such change, and every handwritten fault, must break a law or a scenario. `python -m tests.swap.simulation.bite`
prints each change with the check that finds it; `bite_list.py` says why some cannot be found. No part of `make test`.

First every check runs on the unchanged machine, and the calls of its functions are recorded. A changed function that
answers all calls of a check like the original cannot be seen by that check, which is left out. The check that found a
change in an earlier run comes first, then quick ones for about two seconds; every other check is tried at the end.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from tests.places import ROOT
from tests.swap.simulation.bite_list import EQUIVALENT
from tests.swap.simulation.checks import Check, checks
from tests.swap.simulation.mutations import MACHINE, MODULES, Mutation, mutations
from tests.swap.simulation.recording import Recorded, record
from tests.swap.simulation.trial import Result, judge

HERE = Path(__file__).parent
STATE = ROOT / ".cache" / "bite.json"
OWN = ("bite.py", "bite_list.py", "installing.py", "mutations.py", "recording.py", "trial.py")
QUICK_S = 2.0  # CPU time of the checks that are tried with each change before any slower one


@dataclass(frozen=True)
class Verdict:
    """The result of a trial, and digests of the changed module and of everything that it was made with."""

    module: str
    everything: str
    result: Result


class State:
    """The verdicts on disk, which `--resume` keeps."""

    def __init__(self, *, resume: bool) -> None:
        self._modules = {module: (MACHINE / f"{module}.py").read_text() for module in MODULES}
        simulation = (file.read_text() for file in sorted(HERE.glob("*.py")) if file.name not in OWN)
        self._everything = _digest(*self._modules.values(), *simulation)
        self._verdicts: dict[str, Verdict] = {}
        if resume and STATE.exists():
            for name, known in json.loads(STATE.read_text()).items():
                self._verdicts[name] = Verdict(known["module"], known["everything"], Result(**known["result"]))

    def known(self, mutation: Mutation) -> Result | None:
        """Return a result that still holds: what was found stays found while its module is the same."""
        verdict = self._verdicts.get(mutation.name)
        if verdict is None or verdict.module != self._digest(mutation):
            return None
        return verdict.result if verdict.result.check or verdict.everything == self._everything else None

    def _digest(self, mutation: Mutation) -> str:
        return _digest(self._modules[mutation.module], mutation.text)

    def finder(self, mutation: Mutation) -> str:
        """The check that found a change in an earlier run, of an earlier machine too; empty if none did."""
        verdict = self._verdicts.get(mutation.name)
        return verdict.result.check if verdict else ""

    def keep(self, mutation: Mutation, result: Result) -> None:
        """Write a result to disk, so that an interrupted run can be resumed."""
        self._verdicts[mutation.name] = Verdict(self._digest(mutation), self._everything, result)
        STATE.parent.mkdir(exist_ok=True)
        new = STATE.with_suffix(".new")
        new.write_text(json.dumps({name: asdict(verdict) for name, verdict in self._verdicts.items()}, indent=1))
        new.replace(STATE)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


class Baseline:
    """Every check with its calls, the quickest first; made when it is first needed, in a minute or two."""

    @cached_property
    def quick(self) -> list[Recorded]:
        return _recorded(check for check in checks() if check.quick)

    @cached_property
    def all(self) -> list[Recorded]:
        return [*self.quick, *_recorded(check for check in checks() if not check.quick)]


def _recorded(chosen: Iterable[Check]) -> list[Recorded]:
    gc.disable()
    recorded = sorted((record(MODULES, check) for check in chosen), key=lambda item: item.cpu_s)
    gc.freeze()
    print(f"{len(recorded)} checks pass, {sum(item.cpu_s for item in recorded):.0f} s", file=sys.stderr)
    return recorded


def _kind(mutation: Mutation, result: Result) -> str:
    listed = mutation.name in EQUIVALENT
    if result.check:
        return "found, although listed as equivalent" if listed else "found"
    return "equivalent" if listed else "NOT FOUND"


def _line(mutation: Mutation, result: Result) -> str:
    detail = f"{result.check}: {result.why}" if result.check else EQUIVALENT.get(mutation.name, "")
    differs = "" if result.check else f" (answers differ in {result.differ} checks)"
    return f"{mutation.name}: {_kind(mutation, result)}{differs}{': ' if detail else ''}{detail}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.swap.simulation.bite", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"limit to these modules of {', '.join(MODULES)}")
    parser.add_argument("--resume", action="store_true", help="keep verdicts of the last run that still hold")
    return parser.parse_args()


def main() -> int:
    """Judge every change, and print what finds it. Returns 1 where one is not found and not listed, or the reverse."""
    arguments = _arguments()
    begun_s = time.monotonic()
    state, counts = State(resume=arguments.resume), Counter[tuple[str, str]]()
    for mutation, result in _judged(state, mutations(arguments.modules or MODULES)):
        counts[mutation.module, _kind(mutation, result)] += 1
        print(_line(mutation, result), flush=True)
    for (module, kind), count in sorted(counts.items()):
        print(f"{module}: {count} {kind}")
    print(f"{counts.total()} changes, {time.monotonic() - begun_s:.0f} s")
    return 0 if {kind for _, kind in counts} <= {"found", "equivalent"} else 1


def _judged(state: State, changes: Iterable[Mutation]) -> Iterator[tuple[Mutation, Result]]:
    """Judge with a few quick checks first, since these find nearly every change, and the rest with every check."""
    baseline, remaining = Baseline(), []
    for mutation in changes:
        if result := state.known(mutation):
            yield mutation, result
            continue
        result = judge(mutation, baseline.quick, state.finder(mutation), QUICK_S)
        if result.check:
            state.keep(mutation, result)
            yield mutation, result
        else:
            remaining.append(mutation)
            print(f"{mutation.name}: not found quickly", file=sys.stderr)
    for mutation in remaining:
        result = judge(mutation, baseline.all, state.finder(mutation), math.inf)
        state.keep(mutation, result)
        yield mutation, result


if __name__ == "__main__":
    sys.exit(main())
