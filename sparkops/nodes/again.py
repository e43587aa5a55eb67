"""Docker now and then cannot begin a program in a container that is well. Then it is begun again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_fixed

from sparkops.command import Completed
from sparkops.errors import CommandFailed

TRIES, PAUSE_S = 3, 0.2
SAID = ("OCI runtime exec failed", "read init-p: connection reset by peer")
"""What runc says then, of any command (moby/moby#40399, concourse/concourse#6180; seen here with Docker 26.1, rarely).

The program was not begun, so nothing was changed by it.
"""


def until_begun(run: Callable[[], Completed], stdin: Iterable[bytes]) -> Completed:
    """Run a command whose program may not begin. Once only where it has a stream to read: that does not come back."""
    tries = stop_after_attempt(TRIES if stdin == () else 1)
    return Retrying(retry=retry_if_exception(never_began), stop=tries, wait=wait_fixed(PAUSE_S), reraise=True)(run)


def never_began(error: BaseException) -> bool:
    """Whether a command failed before its program was begun, and through no fault of its own."""
    return isinstance(error, CommandFailed) and all(words in error.completed.stderr for words in SAID)
