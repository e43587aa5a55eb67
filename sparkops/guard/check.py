"""`python -m sparkops.guard.check` reads all that a guard keeps on its node, and fails where this version cannot.

A new version of the guard must pass it before it replaces the one that runs. It writes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

from sparkops.errors import SparkopsError
from sparkops.guard.state import State


def problems(state: State) -> Iterator[str]:
    """Yield why a file cannot be read, with its next step."""
    reads: list[Callable[[], object]] = [state.membership]
    for service in state.services():
        reads += [partial(read, service) for read in (state.journal, state.record, state.by_hand)]
    for read in reads:
        try:
            read()
        except (SparkopsError, OSError) as error:
            step = error.next_step if isinstance(error, SparkopsError) else ""
            yield f"{error}\n  next: {step}" if step else str(error)


def main() -> None:
    """Print what cannot be read and exit with 1, or with 0."""
    if unreadable := list(problems(State())):
        sys.exit("\n".join(unreadable))


if __name__ == "__main__":
    main()
