"""Bytes for the stdin of a command, written from a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

Gone = tuple[type[Exception], ...]


@dataclass
class Feed:
    """Writes `chunks`. An error of theirs is kept for the thread that waits for the command: see `check`.

    `gone` is what `write` raises once the program has closed its stdin, which is its right.
    """

    chunks: Iterable[bytes]
    write: Callable[[bytes], object]
    close: Callable[[], object]
    gone: Gone
    error: Exception | None = None

    def check(self) -> None:
        """Raise what the chunks raised: the program has got only a part of them."""
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        """Write all of them, then end the stdin."""
        try:
            for chunk in self.chunks:
                try:
                    self.write(chunk)
                except self.gone:
                    break
        except Exception as error:  # noqa: BLE001 - raised by check() in the waiting thread
            self.error = error
        with suppress(*self.gone):
            self.close()


def feed(
    first: bytes,
    rest: Iterable[bytes],
    write: Callable[[bytes], object],
    close: Callable[[], object],
    gone: Gone = (OSError,),
) -> Feed:
    """Begin to write `first` and then `rest`."""
    feeding = Feed(chain((first,) if first else (), rest), write, close, gone)
    threading.Thread(target=feeding.run, daemon=True).start()
    return feeding
