"""Requests that wait for a release, of all services: bounded by service, by client and in all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import disk
from disk import Hold
from memory import Memory, Share
from relay import Arrival, Refusal, settle
from replies import FIGURES, UNAVAILABLE, unavailable

RETRY_S = 30


@dataclass
class Waiting:
    """The waiting requests of one service: a future that ends the wait, with the time of arrival."""

    ends: dict[asyncio.Future[bool], float] = field(default_factory=dict)
    refused: int = 0

    def figures(self, hold: Hold | None) -> dict[str, float]:
        """Return the values of FIGURES."""
        now_s = time.monotonic()
        longest_s = now_s - min(self.ends.values(), default=now_s)
        limits = (hold["most"], hold["longest_s"], max(0.0, left_s(hold))) if hold else (0, 0.0, 0.0)
        return dict(zip(FIGURES, (len(self.ends), round(longest_s, 1), self.refused, *limits), strict=True))


def left_s(hold: Hold) -> float:
    """Return the predicted seconds until a hold ends."""
    return min(hold["until"] - time.time(), hold["left_s"])


class Waits:
    """The waiting requests of all services. The holds are in files.

    Each takes a place: memory for the buffer that HAProxy keeps for it, and for what was read of its body.
    """

    def __init__(self, places: int, place: int) -> None:
        self.services: dict[str, Waiting] = {}
        self.memory = Memory(places * place)
        self._place = place

    def release(self) -> None:
        """Release the requests of services whose hold has ended."""
        for service in self.services.keys() - disk.holds():
            for end in self.services[service].ends:
                settle(end, result=True)

    def figures(self) -> dict[str, dict[str, float]]:
        """Return the figures of every service."""
        return {service: waiting.figures(disk.hold(service)) for service, waiting in self.services.items()}

    async def wait(
        self, service: str, arrival: Arrival, share: Share, kept: int = 0, enter: Callable[[], None] = lambda: None
    ) -> None:
        """Wait while the requests of a service do. Raises Refusal beyond a bound, EOFError if the client has left.

        `kept`: bytes of the request in memory; `enter` is called once they are part of `share`.
        """
        hold, waiting = disk.hold(service), self.services.get(service)
        if hold is None or waiting is None:
            return
        late = left_s(hold) > hold["longest_s"]
        if late or len(waiting.ends) >= hold["most"] or not self.memory.takes(share, self._place + kept):
            raise self._refusal(service)
        enter()
        end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.ends[end] = time.monotonic()
        try:
            await asyncio.wait((end, arrival.left), timeout=hold["longest_s"], return_when=asyncio.FIRST_COMPLETED)
        finally:
            del waiting.ends[end]
        if arrival.left.done():
            raise EOFError
        if not end.done():
            raise self._refusal(service)

    def _refusal(self, service: str) -> Refusal:
        self.services[service].refused += 1
        hold = disk.hold(service)
        remaining_s = left_s(hold) if hold else 0.0
        return Refusal(unavailable(UNAVAILABLE, remaining_s if remaining_s > 0 else RETRY_S))
