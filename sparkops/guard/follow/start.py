"""One start of one container: what this process knows of it, from its mark on disk to the check of its end.

All of it is lost with the process: what must outlive it is in the record on disk, and in Docker.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from sparkops.guard.follow.tasks import MeasuredRoom
from sparkops.swap.model import Answer

REFUSED_S, REFUSED_MOST_S = 5.0, 60.0
"""Seconds from a refused start to the next one: twice as long each time, up to the second figure."""


@dataclass
class Run:
    """One run of a container, as Docker shows it. Another time of its start is another run, whoever started it.

    A thread keeps the run that it was made for, so that it cannot write to a later one.
    """

    at: float | None = None
    """When it began, in seconds since 1970; None until Docker shows it."""
    witnessed: bool = False
    """Whether it began while this process read the containers."""
    loaded: Answer = Answer.UNKNOWN
    """Whether /health has answered; UNKNOWN until this process has asked."""
    watch: threading.Event | None = None
    """Ends the thread that watches it; None while none does."""
    dead: str = ""
    """Why the watch takes it for dead."""
    garbled: str = ""
    """What the watch finds in its answers that is no text."""
    killed: str = ""
    """Why this guard has killed it."""
    ended_s: float | None = None
    """When it was first read as ended, in monotonic seconds."""
    checking: bool = False
    """Whether Docker is being asked if an operator stopped it."""
    checked: bool = False
    """Whether its end was compared with the stops that Docker lists."""

    def note_health(self, health: Answer) -> None:
        """Note an answer of /health. No answer in time shows that it loads only if this process saw it begin."""
        if health is Answer.YES:
            self.loaded = Answer.YES
        elif self.loaded is Answer.UNKNOWN and (health is Answer.NO or self.witnessed):
            self.loaded = Answer.NO

    def note_watch(self, dead: str, garbled: str) -> None:
        """Note what the watch finds now. A finding keeps its first words: others would be news to the leader."""
        self.dead = self.dead if self.dead and dead else dead
        self.garbled = self.garbled if self.garbled and garbled else garbled

    def unwatch(self) -> None:
        """End the thread that watches it."""
        if self.watch:
            self.watch.set()
            self.watch = None


@dataclass
class Start:
    """One start of one container: why it waits or has failed, and what its run has shown. A new mark makes it anew."""

    run: Run = field(default_factory=Run)
    problem: str = ""
    """Why the container could not be created, or why its last start failed."""
    proof: tuple[str, Answer] | None = None
    """The key of the start that the smoke suite ran for, and its result."""
    unproven: Counter[str] = field(default_factory=Counter)
    """By key: the proofs that could not be carried out."""
    refused: str = ""
    """Why it has not happened: memory lacks, or Docker refused it. It is retried."""
    refusals: int = 0
    """How often in a row Docker refused it."""
    due_s: float = 0.0
    """When it is due after one that failed, in monotonic seconds."""
    room: MeasuredRoom | None = None
    lacking_s: float | None = None
    """Since when it waits for memory, in monotonic seconds."""
    dropped: str | None = None
    """The key for which page cache was dropped."""
    progress: str = ""
    """One line for `status` and `status --follow`."""

    def refuse(self, why: str, now_s: float) -> int:
        """Note that Docker refused it, and when the next attempt is due. Returns the refusals in a row."""
        self.refusals += 1
        self.refused = why
        self.due_s = now_s + min(REFUSED_S * 2 ** (self.refusals - 1), REFUSED_MOST_S)
        return self.refusals

    @property
    def hindered(self) -> str:
        """Why it does not happen although it is tried again and again; empty for one that is about to."""
        return self.refused or ("Docker refuses it" if self.refusals else "")

    def accept(self) -> None:
        """Note that Docker has started the container."""
        self.refused, self.refusals = "", 0

    def answer(self) -> None:
        """Note that /health answers: a start that was late continues."""
        self.problem = self.progress = ""

    def again(self) -> Start:
        """Return the start that follows this one: of the same container, with what Docker refused until now."""
        return Start(self.run, refusals=self.refusals, due_s=self.due_s, dropped=self.dropped)

    def forget(self) -> None:
        """Forget why it waits or has failed: another swap starts the container for reasons of its own."""
        self.problem = self.refused = ""
        self.refusals, self.due_s, self.lacking_s = 0, 0.0, None
