"""Engines that an operator stopped past sparkops: nothing starts them again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from sparkops.docker.facts import Container
from sparkops.guard.engines import Engines
from sparkops.guard.state import State
from sparkops.guard.tended import Tended


@dataclass(frozen=True)
class StopsByHand:
    """What operators have stopped on one node."""

    state: State
    engines: Engines
    lock: threading.RLock
    log: Callable[[str], None]

    def ask(self, tended: Tended, container: Container) -> None:
        """Note an operator's stop. While Docker does not say, nothing restarts the engine."""
        by_hand = self.engines.stopped_by_hand(container)
        with self.lock:
            if by_hand:
                self.note(tended, tended.by_hand | {container.name})
            tended.asked[container.name] = container.started_at

    def note(self, tended: Tended, containers: frozenset[str]) -> None:
        """Note the containers that an operator stopped. This process knows them even if the disk is full."""
        if containers == tended.by_hand:
            return
        tended.by_hand = containers
        try:
            self.state.note_by_hand(tended.service, containers)
        except OSError as error:
            self.log(f"{tended.service}: stop by hand not written: {error}")
