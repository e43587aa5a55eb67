"""`python -m sparkops.guard.check` reads all that a guard keeps on its node, and fails where this version cannot.

A new version of the guard must pass it before it replaces the one that runs. It writes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

from pydantic import ValidationError

from sparkops.errors import SparkopsError
from sparkops.guard.disk.state import State
from sparkops.serving import engine_spec
from sparkops.swap.model import RankSpec


def problems(state: State) -> Iterator[str]:
    """Yield why a file, or the spec of an engine in it, cannot be read, with its next step."""
    reads: list[Callable[[], object]] = [state.membership, state.monitored, state.cordon]
    for service in state.services():
        reads += [partial(read, service) for read in (state.by_hand, partial(_read_engines, state))]
    for read in reads:
        try:
            read()
        except (SparkopsError, OSError) as error:
            step = error.next_step if isinstance(error, SparkopsError) else ""
            yield f"{error}\n  next: {step}" if step else str(error)


def _read_engines(state: State, service: str) -> None:
    """Read journal and record, and the specs of the engines that they may start, stop or check.

    A previous release is not among them: no guard reads its spec until an operator returns to it.
    """
    journal, record = state.journal(service), state.record(service)
    journals = [copy for copy in (journal, record.copy) if copy]
    deployed = [rank for copy in journals for deployment in copy.deployments for rank in deployment.ranks]
    for rank in dict.fromkeys([*deployed, *([record.armed] if record.armed else [])]):
        _read_spec(service, rank)


def _read_spec(service: str, rank: RankSpec) -> None:
    """Read the spec of an engine. Raises SparkopsError where another version wrote it."""
    try:
        engine_spec.of(rank).require_readable()
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}".removeprefix(": ")
        step = f"Use the version of sparkops that last deployed {service}, or a newer one."
        problem = f"{service}: the spec of {rank.container} was written by another version: {why}"
        raise SparkopsError(problem, next_step=step) from None


def main() -> None:
    """Print what cannot be read and exit with 1, or with 0."""
    if unreadable := list(problems(State())):
        sys.exit("\n".join(unreadable))


if __name__ == "__main__":
    main()
