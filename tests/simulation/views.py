"""What questions find out: the truth about engines, and what a gateway shows of it."""

from __future__ import annotations

from enum import StrEnum

from sparkops.swap.model import Answer
from tests.simulation.sharing import by_identity


class Health(StrEnum):
    """The truth about an engine."""

    STOPPED = "stopped"
    LOADING = "loading"
    GOOD = "good"
    HUNG = "hung"
    """It runs and answers nothing, /health apart."""
    BUSY = "busy"
    """It computes, and answers later than a question waits."""
    WRONG = "wrong"
    """It answers nonsense."""


Exposed = tuple[bool, tuple[tuple[str, Health], ...]]
"""What requests find on a node: whether it is lost, and the release and health of its engines."""


@by_identity
def answering(*nodes: Exposed | bool) -> tuple[dict[str, Answer], dict[str, Answer]]:
    """By release, the truth and what a short question finds out. `nodes`: every node, then whether it is reached."""
    half = len(nodes) // 2
    ranks: dict[str, list[tuple[Health, bool]]] = {}
    for node, reached in zip(nodes[:half], nodes[half:], strict=True):
        for release, health in node[1] if isinstance(node, tuple) else ():
            ranks.setdefault(release, []).append((health, bool(reached)))
    truth = {release: _truth(rank_healths) for release, rank_healths in ranks.items()}
    return truth, {release: _short(rank_healths, truth[release]) for release, rank_healths in ranks.items()}


def _truth(ranks: list[tuple[Health, bool]]) -> Answer:
    return Answer.YES if all(reached and health is Health.GOOD for health, reached in ranks) else Answer.NO


def _short(ranks: list[tuple[Health, bool]], truth: Answer) -> Answer:
    healths = {health for health, _ in ranks}
    if Health.STOPPED in healths:
        return truth
    if Health.BUSY in healths:
        return Answer.UNKNOWN
    return Answer.YES if Health.WRONG in healths else truth
