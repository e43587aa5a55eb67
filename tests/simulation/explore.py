"""Every state within a bounded number of faults and intents, breadth first, with the trace of what broke a law."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.simulation import laws
from tests.simulation.faults import faults
from tests.simulation.scenarios import operators, rebuild
from tests.simulation.transitions import Transition, following
from tests.simulation.world import World, canonical, identity


class Violation(AssertionError):
    """A law is broken."""


@dataclass(frozen=True)
class Result:
    """How much was explored."""

    states: int
    ends: int


def explore(start: World, *, faults_: int, intents: int, limit: int = 10_000_000) -> Result:
    """Visit every state. Raises Violation with the trace that leads to it."""
    start = canonical(replace(start, faults=faults_))
    first = (start, intents)
    parents: dict[int, tuple[int, str]] = {hash((identity(start), intents)): (0, "start")}
    waiting = deque([first])
    fair: dict[int, int] = {}
    ends = 0
    while waiting:
        world, left = waiting.popleft()
        mine = hash((identity(world), left))
        wrongs = [*world.wrongs, *laws.standing(world)]
        after = following(world) or rebuild(world)
        if after is None:
            ends += 1
            wrongs += laws.settled(world)
        if wrongs:
            raise Violation("\n".join([*_trace(parents, mine), *wrongs]))
        if after is None:
            fair[mine] = 0
        for label, branch, budget in _branches(world, left, after):
            reached = canonical(branch)
            key = hash((identity(reached), budget))
            fair.setdefault(mine, key)  # the first branch is that of the fair schedule
            if key not in parents:
                parents[key] = (mine, label)
                waiting.append((reached, budget))
        if len(parents) > limit:
            raise Violation(f"more than {limit} states")
    _must_end(fair, parents)
    return Result(len(parents), ends)


def _must_end(fair: dict[int, int], parents: dict[int, tuple[int, str]]) -> None:
    """Every fair run ends. Raises Violation where one runs in a circle."""
    ended: set[int] = set()
    for start in fair:
        path: dict[int, None] = {}
        state = start
        while state in fair and state not in ended:
            if state in path:
                raise Violation("\n".join([*_trace(parents, state), "8: it goes round in circles"]))
            path[state] = None
            state = fair[state]
        ended.update(path)


def _branches(world: World, left: int, after: Transition | None) -> Iterator[tuple[str, World, int]]:
    if after is not None:
        yield (*after, left)
    if world.faults:
        for label, hurt in faults(world):
            if hurt is not world:
                yield f"FAULT {label}", replace(hurt, faults=world.faults - 1), left
    if left:
        for label, asked in operators(world):
            yield label, asked, left - 1


def _trace(parents: dict[int, tuple[int, str]], state: int) -> list[str]:
    lines = []
    while state:
        state, label = parents[state]
        lines.append(label)
    return lines[::-1]
