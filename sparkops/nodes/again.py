"""Docker now and then cannot begin a program in a container that is well. Then it is begun again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from sparkops.errors import CommandFailed, ConnectionLost

R = TypeVar("R")
TRIES, PAUSE_S = 3, 0.2
SAID = ("unable to start container process", "read init-p: connection reset by peer")
"""What `docker exec` then prints on stdout, `docker run` on stderr, and a step of a build as its own output.

moby/moby#40399, concourse/concourse#6180; seen with Docker 26.1 and runc 1.1.15, rarely. The program was not begun,
so nothing was changed by it.
"""


def until_begun(
    run: Callable[[], R],
    stdin: Iterable[bytes] = (),
    raised: tuple[type[Exception], ...] = (CommandFailed, ConnectionLost),
) -> R:
    """Do what begins a program in a container. Once only where it is given a stream: that does not come back.

    Where Docker could not begin it, `run` raises one of `raised` with Docker's words.
    """
    for _ in range(TRIES - 1 if stdin == () else 0):
        try:
            return run()
        except raised as error:
            if not all(words in str(error) for words in SAID):
                raise
        time.sleep(PAUSE_S)
    return run()
