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


Places = tuple[tuple[str, str], ...]
"""The node and container of each rank of a replica."""
Site = tuple[str, tuple[Places, ...]]
"""A release, and the ranks of each of its replicas."""
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
    truths, shorts = dict[Slot, Answer](), dict[Slot, Answer]()
    for slot, (_, replicas) in slots:
        ranks = [[healths.get(place, gone) for place in places] for places in replicas]
        truths[slot] = _any([_truth(replica) for replica in ranks])
        shorts[slot] = _any([_short(replica, _truth(replica)) for replica in ranks])
    return truths, shorts


def _any(replicas: list[Answer]) -> Answer:
    """A request goes to a replica that answers: HAProxy sends none to one that fails its checks."""
    return next((answer for answer in (Answer.YES, Answer.UNKNOWN) if answer in replicas), Answer.NO)


def _truth(ranks: list[tuple[Health, bool]]) -> Answer:
    return Answer.YES if all(reached and health is Health.GOOD for health, reached in ranks) else Answer.NO


def _short(ranks: list[tuple[Health, bool]], truth: Answer) -> Answer:
    healths = {health for health, _ in ranks}
    if Health.STOPPED in healths or not all(reached for _, reached in ranks):
        return truth
    if Health.BUSY in healths:
        return Answer.UNKNOWN
    return Answer.YES if {Health.WRONG, Health.TAKEN} & healths else truth
