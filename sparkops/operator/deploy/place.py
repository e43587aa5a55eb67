"""Where a recipe fits, as a value: what computes it imports all that connects."""

from __future__ import annotations

from dataclasses import dataclass

Place = tuple[str, ...]
"""The nodes of one replica, in the order of its ranks."""


@dataclass(frozen=True)
class Suitable:
    """Where a recipe fits: `places` if nothing else ran there, `now` beside what runs, `running` where it runs.

    `reasons`: why it fits nowhere; empty if it fits.
    """

    places: tuple[Place, ...]
    now: tuple[Place, ...] = ()
    running: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
