"""Processes that change a journal, for tests: one that is killed in the middle, one that counts.

python -m tests.guard.writer killed DIRECTORY     a line for each point at which a writer was killed
python -m tests.guard.writer count DIRECTORY N    N changes, each of which raises the generation by one
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path
from types import FrameType

from sparkops.guard.store import Store
from sparkops.plan.journal import Journal
from sparkops.plan.lock import Clock

OLD, NEW = "the old reason", "the new reason " * 1000


def write(store: Store, hold: str) -> None:
    """One change."""
    store.change("chat", lambda journal, _: journal.model_copy(update={"hold": hold}))


def killed(store: Store) -> None:
    """Kill one writer after another, each a call of the system or the library later, until one comes through."""
    for point in count(1):
        write(store, OLD)
        writer = os.fork()
        if not writer:
            die_at(point)
            write(store, NEW)
            os._exit(0)
        _, status = os.waitpid(writer, 0)
        print({OLD: "old", NEW: "new"}[store.read("chat").hold or ""])
        if status == 0:
            return


def die_at(point: int) -> None:
    """Kill this process at the store's n-th call of what is not written in Python: open, write, fsync and the like."""
    calls = count(1)

    def called(frame: FrameType, event: str, _: object) -> None:
        by_the_store = frame.f_code.co_filename.endswith(("store.py", "pathlib.py"))
        if by_the_store and event == "c_call" and next(calls) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(called)


def counted(store: Store, times: int) -> None:
    """Raise the generation again and again."""
    for _ in range(times):
        store.change("chat", _one_more)


def _one_more(journal: Journal, _: Clock) -> Journal:
    return journal.model_copy(update={"generation": journal.generation + 1})


if __name__ == "__main__":
    here = Store(Path(sys.argv[2]))
    if sys.argv[1] == "killed":
        killed(here)
    else:
        counted(here, int(sys.argv[3]))
