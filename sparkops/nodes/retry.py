"""Retry programs that Docker failed to start in a healthy container."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from sparkops.errors import CommandFailed, ConnectionLost
from sparkops.nodes.waiting import Waiting

R = TypeVar("R")
TRIES, PAUSE_S = 3, 0.2
SAID = ("unable to start container process", "read init-p: connection reset by peer")
"""What `docker exec` then prints on stdout, `docker run` on stderr, and a step of a build as its own output.

moby/moby#40399, concourse/concourse#6180; seen with Docker 26.1 and runc 1.1.15, rarely. The program did not start,
so it changed nothing.
"""


def until_begun(
    run: Callable[[], R],
    stdin: Iterable[bytes] = (),
    raised: tuple[type[Exception], ...] = (CommandFailed, ConnectionLost),
    cancel: threading.Event | None = None,
) -> R:
    """Start a program in a container, again if Docker failed to; once only with a stream, which cannot be repeated.

    If Docker fails to start it, `run` raises one of `raised` with Docker's message. Raises Interrupted.
    """

    def not_begun(error: BaseException) -> bool:
        return isinstance(error, raised) and all(words in str(error) for words in SAID)

    waiting = Waiting(PAUSE_S, cancel=cancel or threading.Event(), tries=TRIES if stdin == () else 1)
    return waiting.retry(run, not_begun)
