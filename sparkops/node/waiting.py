"""Polls and retries, each with pauses, a bound and an event that cancels it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, retry_if_not_result, wait_exponential, wait_random
from tenacity.retry import retry_base

from sparkops.errors import Busy, CommandFailed, ConnectionLost, Interrupted
from sparkops.node.progress import Event, OnEvent, Repeats

T = TypeVar("T")
MAX_PAUSE_S = 5.0
BUSY_PAUSE_S = 2.0
START_TRIES, START_PAUSE_S = 3, 0.2
START_FAILED = ("unable to start container process", "read init-p: connection reset by peer")
"""Docker's messages for this failure: of `docker exec` on stdout, `docker run` on stderr, a build step in its output.

moby/moby#40399, concourse/concourse#6180; measured with Docker 26.1 and runc 1.1.15, rarely. The program did not start,
so it changed nothing.
"""


@dataclass(frozen=True)
class Waiting:
    """How an attempt is repeated: after `pause_s` seconds, for `within_s` seconds and at most `tries` times.

    `backoff`: the pause doubles up to MAX_PAUSE_S, plus a random part, so that many clients do not come at once.
    `interrupted` is raised once `cancel` is set during a pause.
    """

    pause_s: float
    within_s: float = inf
    cancel: threading.Event = field(default_factory=threading.Event)
    tries: float = field(default=inf, kw_only=True)
    backoff: bool = field(default=False, kw_only=True)
    interrupted: Interrupted = field(default_factory=lambda: Interrupted("interrupted"), kw_only=True)

    def retry(
        self,
        attempt: Callable[[], T],
        passing: Callable[[BaseException], bool],
        report: Callable[[Any], None] = lambda _: None,
    ) -> T:
        """Repeat an attempt that raises a passing error, which `report` gets. Raises the last error or Interrupted."""
        return self._repeat(
            attempt, retry_if_exception(passing), lambda state: report(state.outcome and state.outcome.exception())
        )

    def poll(
        self, sample: Callable[[], T], expected: Callable[[T], object], report: Callable[[T], None] = lambda _: None
    ) -> T:
        """Repeat a sample until it is as expected. Returns the last one, also at the bound. Raises Interrupted."""
        return self._repeat(
            sample,
            retry_if_not_result(lambda result: bool(expected(result))),
            lambda state: report(state.outcome and state.outcome.result()),  # type: ignore[arg-type]
        )

    def _repeat(self, attempt: Callable[[], T], condition: retry_base, report: Callable[[RetryCallState], None]) -> T:
        return Retrying(
            retry=condition,
            stop=lambda state: self._elapsed_s(state) >= self.within_s or state.attempt_number >= self.tries,
            wait=self._pause_s,
            sleep=self._sleep,
            before_sleep=report,
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )(attempt)

    def _elapsed_s(self, state: RetryCallState) -> float:
        return state.seconds_since_start or 0.0

    def _pause_s(self, state: RetryCallState) -> float:
        pause_s = self.pause_s
        if self.backoff:
            longer = wait_exponential(multiplier=pause_s, max=MAX_PAUSE_S) + wait_random(0.0, pause_s * 2)
            pause_s = longer(state)
        return min(pause_s, self.within_s - self._elapsed_s(state))

    def _sleep(self, seconds: float) -> None:
        if self.cancel.wait(seconds):
            raise self.interrupted


def retry_start(
    run: Callable[[], T],
    stdin: Iterable[bytes] = (),
    raised: tuple[type[Exception], ...] = (CommandFailed, ConnectionLost),
    cancel: threading.Event | None = None,
) -> T:
    """Run a program in a healthy container, again if Docker failed to start it.

    `run` then raises one of `raised` with Docker's message. With a stream as stdin, which cannot be repeated, there is
    one try. Raises Interrupted.
    """

    def not_started(error: BaseException) -> bool:
        return isinstance(error, raised) and all(words in str(error) for words in START_FAILED)

    waiting = Waiting(START_PAUSE_S, cancel=cancel or threading.Event(), tries=START_TRIES if stdin == () else 1)
    return waiting.retry(run, not_started)


def until_free(attempt: Callable[[], T], wait_s: float, node: str, report: OnEvent, cancel: threading.Event) -> T:
    """Retry an attempt that is refused with exit code 4, for `wait_s`. Raises Busy after that, or Interrupted."""
    repeats = Repeats()

    def report_busy(busy: Busy) -> None:
        report(Event(node, f"waiting: {busy}", lasting=repeats.keeps(str(busy), time.monotonic())))

    return Waiting(BUSY_PAUSE_S, wait_s, cancel).retry(attempt, lambda error: isinstance(error, Busy), report_busy)
