"""Memory in bytes that requests share: all of it is bounded, and what one client has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from relay import Refusal, settle
from replies import TOO_MANY, unavailable

TAKE_S = 10.0
RETRY_S = 10


@dataclass(eq=False)
class Share:
    """The memory of one request in bytes: what it has, and what it lacks to be complete."""

    client: bytes
    lacking: int = 0
    held: int = 0


class Memory:
    """Memory in bytes, given as requests need it and shared by client.

    A client has at most as much as it leaves free, so there is room for others: for a quarter of the memory beside a
    client that takes all it can. Of its own requests one can always be completed with what it may have.
    """

    def __init__(self, size: int) -> None:
        self._free = size
        self._shares: dict[bytes, list[Share]] = {}
        self._waiting: list[asyncio.Future[bool]] = []

    @contextmanager
    def lent(self, client: bytes) -> Iterator[Share]:
        """Yield the share of a request, empty at first."""
        share = Share(client)
        self._shares.setdefault(client, []).append(share)
        try:
            yield share
        finally:
            self.end(share)

    def end(self, share: Share) -> None:
        """Free the memory of a request that does not count any longer."""
        self.give_back(share)
        shares = self._shares.get(share.client, [])
        if share in shares:
            shares.remove(share)
        if not shares:
            self._shares.pop(share.client, None)

    def count(self, client: bytes) -> int:
        """Return the number of requests of a client that have a share."""
        return len(self._shares.get(client, ()))

    async def take(self, share: Share, size: int) -> None:
        """Add `size` bytes to a share, as soon as there is room. Raises Refusal."""
        try:
            async with asyncio.timeout(TAKE_S):
                while not self.takes(share, size):
                    turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
                    self._waiting.append(turn)
                    await turn
        except TimeoutError:
            raise Refusal(unavailable(TOO_MANY, RETRY_S)) from None

    def takes(self, share: Share, size: int) -> bool:
        """Add `size` bytes to a share if there is room, and return whether there is."""
        if not self._allows(share, size):
            return False
        share.held += size
        share.lacking = max(0, share.lacking - size)
        self._free -= size
        return True

    def give_back(self, share: Share) -> None:
        """Free the memory of a request that does not need it any longer."""
        self._free += share.held
        share.held = 0
        self.complete(share)

    def complete(self, share: Share) -> None:
        """Note that a request needs no more memory."""
        share.lacking = 0
        for turn in self._waiting:
            settle(turn, result=True)
        self._waiting.clear()

    def _allows(self, share: Share, size: int) -> bool:
        """Whether a share may grow: the client's requests can then still be completed, one after another (Dijkstra)."""
        others = [other for other in self._shares[share.client] if other is not share]
        held = sum(other.held for other in others) + share.held
        room = (held + self._free) // 2 - held - size
        lacks = max(0, share.lacking - size)
        after = [(lacks, share.held + size), *((other.lacking, other.held) for other in others)]
        for lacking, freed in sorted(after):
            if lacking > room:
                return False
            room += freed
        return True
