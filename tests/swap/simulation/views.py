"""What questions find out: the truth about engines, and what a gateway shows of it."""

from __future__ import annotations

from enum import StrEnum

from sparkops.names import Slot
from sparkops.swap.model import Answer
from tests.swap.simulation.sharing import by_identity

Answers = dict[Slot, Answer]


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
    TAKEN = "taken"
    """It has ended, and another program answers on its port."""


Site = tuple[str, tuple[tuple[str, str], ...]]
"""A release, and the node and container of each of its ranks."""
Exposed = tuple[str, tuple[tuple[str, Health], ...]]
"""What requests find on a node: its name, and the health of each of its containers; none on one that is lost."""


@by_identity
def answering(slots: tuple[tuple[Slot, Site], ...], *nodes: Exposed | bool) -> tuple[Answers, Answers]:
    """By slot, the truth and what a short question finds out. `nodes`: every node, then whether it is reached."""
    half = len(nodes) // 2
    healths: dict[tuple[str, str], tuple[Health, bool]] = {}
    for node, reached in zip(nodes[:half], nodes[half:], strict=True):
        if isinstance(node, tuple):
            healths.update({(node[0], container): (health, bool(reached)) for container, health in node[1]})
    gone = Health.STOPPED, True
    ranks = {slot: [healths.get(place, gone) for place in places] for slot, (_, places) in slots}
    truth = {slot: _truth(rank_healths) for slot, rank_healths in ranks.items()}
    return truth, {slot: _short(rank_healths, truth[slot]) for slot, rank_healths in ranks.items()}


def _truth(ranks: list[tuple[Health, bool]]) -> Answer:
    return Answer.YES if all(reached and health is Health.GOOD for health, reached in ranks) else Answer.NO


def _short(ranks: list[tuple[Health, bool]], truth: Answer) -> Answer:
    healths = {health for health, _ in ranks}
    if Health.STOPPED in healths or not all(reached for _, reached in ranks):
        return truth
    if Health.BUSY in healths:
        return Answer.UNKNOWN
    return Answer.YES if {Health.WRONG, Health.TAKEN} & healths else truth
