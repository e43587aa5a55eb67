"""Threads for the questions of a guard, of which each is asked when it is due or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers(ThreadPoolExecutor):
    """A pool whose refused work never runs: a plain one keeps it queued, and executes all of it later."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit work. Raises RuntimeError where no thread can be started for it."""
        refused = threading.Event()

        def work() -> T:
            if refused.is_set():
                raise RuntimeError("refused")
            return fn(*args, **kwargs)

        try:
            return super().submit(work)
        except RuntimeError:
            refused.set()
            raise
