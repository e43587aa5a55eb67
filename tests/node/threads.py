"""A moment in which this process starts no thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

MORE_THAN_ANY_ADDRESS_SPACE = 2**50


@contextmanager
def no_thread_starts() -> Iterator[None]:
    """Let every start of a thread fail as without memory for one, in clone(2): RuntimeError, can't start new thread."""
    before = threading.stack_size(MORE_THAN_ANY_ADDRESS_SPACE)
    try:
        yield
    finally:
        threading.stack_size(before)
