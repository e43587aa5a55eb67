"""Executors without threads."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Any


class AtOnce(Executor):
    """Executes where it is submitted."""

    def submit(self, fn: Any, /, *args: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **more))
        return future


class NoThreads(Executor):
    """Can start no thread, as where the machine has no memory for its stack or no number for it."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        raise RuntimeError("can't start new thread")
