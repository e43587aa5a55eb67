"""Work on several nodes at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from sparkops.errors import Interrupted, SparkopsError, joined

R = TypeVar("R")
MAX_NODES = 16
TICK_S = 0.2


def on_each(names: Iterable[str], work: Callable[[str], R], cancel: threading.Event) -> dict[str, R | SparkopsError]:
    """Do `work` for every name in a thread of its own and wait for all.

    A SparkopsError is that name's result; any other error ends everything. Ctrl-C sets `cancel`, waits until the work
    has stopped on the nodes as well, and raises Interrupted.
    """
    with ThreadPoolExecutor(MAX_NODES) as pool:
        futures: dict[str, Future[R | SparkopsError]] = {}
        try:
            for name in names:
                futures[name] = pool.submit(_outcome, work, name)
            _wait(futures.values())
        except KeyboardInterrupt:
            cancel.set()
            _wait(futures.values())
    if cancel.is_set():
        raise Interrupted("interrupted")
    return {name: future.result() for name, future in futures.items()}


def _outcome(work: Callable[[str], R], name: str) -> R | SparkopsError:
    try:
        return work(name)
    except SparkopsError as error:
        return error


def _wait(futures: Iterable[Future[R | SparkopsError]]) -> None:
    """Wait in short steps: a wait without a limit would not notice Ctrl-C."""
    pending = set(futures)
    while pending:
        _, pending = wait(pending, timeout=TICK_S, return_when=FIRST_COMPLETED)


def all_or_raise(outcomes: Mapping[str, R | SparkopsError]) -> dict[str, R]:
    """Return the results. Raises one error for all nodes that failed."""
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, SparkopsError)]
    if errors:
        raise joined(errors)
    return {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, SparkopsError)}
