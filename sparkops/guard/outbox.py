"""The last notices of a node on disk, numbered, and how far each receiver has got: the queue of the webhook.

Writing never fails for the caller: a notice that cannot be saved is kept in memory, and told from there. The file has
its full size from the start (guard/durable.py), so that a full disk, which is one of the events, loses none.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sparkops.errors import SparkopsError
from sparkops.guard.durable import Durable
from sparkops.notices.catalogue import Code, Notice, NoticeState
from sparkops.notices.conditions import ended
from sparkops.notices.message import MOST_TEXT, Numbered
from sparkops.swap import wire
from sparkops.swap.wire import WireError

MOST, BYTES = 500, 512 * 1024
"""Most notices that are kept, and bytes of the file. A busy node has some ten a day: they last for weeks."""
SCHEMA = 2  # of all files of a guard


@dataclass(frozen=True)
class Cursor:
    """How far a receiver has got: the number of the last notice that was sent, set aside or lost, and how many it lost.

    `lost`: since the last that was sent. `aside`: those that newer ones have overtaken, still to be sent.
    """

    n: int
    lost: int = 0
    aside: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stored:
    """What the file has. `begun`: begins without an end, by key."""

    next: int = 1
    notices: tuple[Numbered, ...] = ()
    begun: Mapping[str, Notice] = field(default_factory=dict)
    cursors: Mapping[str, Cursor] = field(default_factory=dict)
    schema: int = SCHEMA


@dataclass
class Outbox:
    """The notices of one node. Every method may be called by several threads; none raises an error of the disk."""

    file: Path
    log: Callable[[str], None]
    now: Callable[[], float] = time.time
    changed: threading.Condition = field(default_factory=threading.Condition)
    """Notified when there is another notice. It guards the rest."""
    _durable: Durable = field(init=False)
    _stored: Stored | None = None

    def __post_init__(self) -> None:
        self._durable = Durable(self.file, BYTES)

    def add(self, notice: Notice) -> None:
        """Add a notice. A begin that was told before, and has not ended, is not told again."""
        with self.changed:
            stored, key = self._read(), notice.key
            if notice.state is NoticeState.BEGINS and (begun := stored.begun.get(key)) and begun.text == notice.text:
                return
            begun_now = dict(stored.begun)
            if notice.state is NoticeState.BEGINS:
                begun_now[key] = notice
            elif notice.state is NoticeState.ENDS and not begun_now.pop(key, None):
                return
            self._write(replace(self._with(stored, notice), begun=begun_now))
            self.changed.notify_all()

    def _with(self, stored: Stored, notice: Notice) -> Stored:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now()))
        short = replace(notice, text=_short(notice.text), next_step=_short(notice.next_step))
        numbered = Numbered(stored.next, secrets.token_hex(8), at, short)
        return replace(stored, next=stored.next + 1, notices=(*stored.notices, numbered)[-MOST:])

    def begun(self, codes: Collection[Code]) -> tuple[Notice, ...]:
        """Return the begins of these codes that have no end yet."""
        with self.changed:
            return tuple(notice for notice in self._read().begun.values() if notice.code in codes)

    def end(self, codes: Collection[Code], why: str) -> None:
        """End what these codes began: nobody watches it any more."""
        for notice in self.begun(codes):
            self.add(ended(notice, why))

    def since(self, n: int) -> tuple[Numbered, ...]:
        """Return the kept notices after number `n`, oldest first."""
        with self.changed:
            return tuple(numbered for numbered in self._read().notices if numbered.n > n)

    @property
    def last(self) -> int:
        """Return the number of the newest notice; 0 before the first."""
        with self.changed:
            return self._read().next - 1

    def receivers(self, names: Collection[str]) -> None:
        """Keep a cursor for each of these receivers. A new one gets what comes from now on; the others are forgotten.

        A new one in place of others gets what waited for any of them: a URL may have been corrected.
        After the file was damaged all are new: they also get that, and all after it.
        """
        with self.changed:
            stored = self._read()
            damaged = bool(stored.notices) and stored.notices[0].notice.code is Code.NOTICES_LOST
            removed = [cursor for name, cursor in stored.cursors.items() if name not in names]
            new = Cursor(0) if damaged else _earliest([Cursor(stored.next - 1), *removed])
            cursors = {name: stored.cursors.get(name, new) for name in names}
            if cursors != stored.cursors:
                self._write(replace(stored, cursors=cursors))

    def due(self, receiver: str) -> tuple[Numbered, int] | None:
        """Return the next notice in order for a receiver, and how many are lost to it since the last that was sent.

        None if there is none but those that were set aside.
        """
        with self.changed:
            stored = self._read()
            cursor = stored.cursors.get(receiver)
            if cursor is None:
                return None
            first = next((numbered for numbered in stored.notices if numbered.n > cursor.n), None)
            return (first, _lost(stored, cursor) + first.n - cursor.n - 1) if first else None

    def aside(self, receiver: str) -> dict[int, tuple[Numbered, int]]:
        """Return, by number, what newer notices have overtaken, each with how many are lost to this receiver."""
        with self.changed:
            stored = self._read()
            cursor = stored.cursors.get(receiver, Cursor(0))
            lost = _lost(stored, cursor)
            return {numbered.n: (numbered, lost) for numbered in stored.notices if numbered.n in cursor.aside}

    def sent(self, receiver: str, n: int) -> None:
        """Note that a receiver has got notice `n`."""
        self._move(receiver, n, 0)

    def skip(self, receiver: str, n: int, lost: int) -> None:
        """Note that a receiver will not get notice `n`, nor the `lost` ones before it."""
        self._move(receiver, n, lost + 1)

    def overtake(self, receiver: str, n: int, lost: int) -> None:
        """Set notice `n` aside: those after it are sent first. `lost`: as `due` has it."""
        self._move(receiver, n, lost, (n,))

    def _move(self, receiver: str, n: int, lost: int, aside: tuple[int, ...] = ()) -> None:
        with self.changed:
            stored = self._read()
            known = stored.cursors.get(receiver)
            if known is None or (n <= known.n and n not in known.aside):
                return  # a former thread may still send what another one has sent
            kept = {numbered.n for numbered in stored.notices}
            others = tuple(number for number in known.aside if number != n and number in kept)
            cursor = Cursor(max(n, known.n), lost, (*others, *aside))
            self._write(replace(stored, cursors={**stored.cursors, receiver: cursor}))

    def _read(self) -> Stored:
        if self._stored is None:
            self._stored = self._loaded()
        return self._stored

    def _loaded(self) -> Stored:
        """Read the file. One that cannot be read is moved aside, and told as lost."""
        try:
            data = self._durable.read()
            return wire.load(Stored, data) if data else Stored()
        except (SparkopsError, WireError, OSError) as error:
            self.log(f"notices not read: {error}")
            aside = self.file.with_name(f"{self.file.name}.bad")
            try:
                self.file.replace(aside)
            except OSError as failed:
                self.log(f"{self.file}: not moved aside: {failed}")
            text = "notices that waited on this node cannot be read; the history of each service has the events"
            return self._with(Stored(), Notice(Code.NOTICES_LOST, text))

    def _write(self, stored: Stored) -> None:
        data = wire.dump(Stored, stored)
        while len(data) > BYTES and stored.notices:
            stored = replace(stored, notices=stored.notices[len(stored.notices) // 10 + 1 :])
            data = wire.dump(Stored, stored)
        self._stored = stored
        try:
            self._durable.write(data)
        except (SparkopsError, OSError) as error:
            self.log(f"notices not saved, sent from memory: {error}")


def _lost(stored: Stored, cursor: Cursor) -> int:
    """Return how many were lost up to a cursor, with those set aside that are not kept any more."""
    kept = {numbered.n for numbered in stored.notices}
    return cursor.lost + sum(number not in kept for number in cursor.aside)


def _earliest(cursors: Collection[Cursor]) -> Cursor:
    """Return a cursor with all that waits at any of these."""
    first = min(cursor.n for cursor in cursors)
    aside = {number for cursor in cursors for number in cursor.aside if number <= first}
    return Cursor(first, max(cursor.lost for cursor in cursors if cursor.n == first), tuple(sorted(aside)))


def _short(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"
