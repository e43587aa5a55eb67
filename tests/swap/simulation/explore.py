"""Every state within a bounded number of faults and intents, breadth first, with the trace of what broke a law."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from sys import intern

from sparkops.swap.effects import StartEngine, StopEngine
from tests.swap.simulation import laws
from tests.swap.simulation.faults import distinct, ended, exhausted, faults
from tests.swap.simulation.guards import acts
from tests.swap.simulation.next_steps import helped
from tests.swap.simulation.scenarios import operators, rebuild
from tests.swap.simulation.states import canonical, identity
from tests.swap.simulation.transitions import following, lasting
from tests.swap.simulation.world import Transition, World


class Violation(AssertionError):
    """A law is broken."""


@dataclass(frozen=True)
class Result:
    """How much was explored."""

    states: int
    ends: tuple[World, ...]
    """Where fair runs have settled."""


@dataclass(frozen=True, slots=True)
class State:
    """A world, and how many faults and intents may still happen in it."""

    world: World
    place: int
    """Equal worlds have equal places."""
    faults: int
    intents: int

    @property
    def key(self) -> Key:
        return self.place, self.faults, self.intents


Key = tuple[int, int, int]


class Visited:
    """What has been reached, from where, and the next world of each fair run."""

    def __init__(self, begin: State) -> None:
        self.parents: dict[Key, tuple[Key | None, str]] = {begin.key: (None, "start")}
        self.fair: dict[int, int] = {}
        budgets = [*product(range(begin.faults + 1), range(begin.intents + 1))]
        self._at_least = {
            (faults_, intents): [budget for budget in budgets if budget[0] >= faults_ and budget[1] >= intents]
            for faults_, intents in budgets
        }

    def add(self, state: State, parent: Key, label: str) -> bool:
        """Add a state, unless the same world was reached with as many faults and intents left: it leads nowhere new."""
        if any((state.place, *left) in self.parents for left in self._at_least[state.faults, state.intents]):
            return False
        self.parents[state.key] = (parent, intern(label))
        return True

    def trace(self, key: Key | None) -> list[str]:
        """The labels of the transitions that lead to a state."""
        lines = []
        while key is not None:
            key, label = self.parents[key]
            lines.append(label)
        return lines[::-1]

    def must_end(self) -> None:
        """Every fair run ends. Raises Violation where one runs in a circle."""
        ended: set[int] = set()
        for start in self.fair:
            path: dict[int, None] = {}
            place = start
            while place in self.fair and place not in ended:
                if place in path:
                    keys = ((place, *budget) for budget in self._at_least[0, 0])
                    trace = self.trace(next(key for key in keys if key in self.parents))
                    raise Violation("\n".join([*trace, "8: it goes round in circles"]))
                path[place] = None
                place = self.fair[place]
            ended.update(path)


def explore(
    start: World,
    *,
    faults_: int,
    intents: int,
    limit: int = 10_000_000,
    reduced: bool = True,
    anytime: bool = True,
) -> Result:
    """Visit every state. Raises Violation with the trace that leads to it.

    `anytime`: the causes of faults end at every later point.
    `reduced`: leave out faults and intents that commute with the next transition, see `distinct` and `_asks`.
    """
    begin = _state(start, faults_, intents)
    visited = Visited(begin)
    waiting = deque([begin])
    ends: list[World] = []
    while waiting:
        state = waiting.popleft()
        after = following(state.world) or rebuild(state.world)
        wrongs = [*state.world.wrongs, *laws.standing(state.world), *_ending(begin, state, after)]
        if wrongs:
            raise Violation("\n".join([*visited.trace(state.key), *wrongs]))
        if after is None:
            ends.append(state.world)
        for label, reached in _branches(state, after, reduced, anytime):
            if after is not None:
                visited.fair.setdefault(state.place, reached.place)  # the first branch is that of the fair schedule
            if visited.add(reached, state.key, label):
                waiting.append(reached)
        if len(visited.parents) > limit:
            raise Violation(f"more than {limit} states")
    visited.must_end()
    return Result(len(visited.parents), tuple(ends))


def _ending(begin: State, state: State, after: Transition | None) -> list[str]:
    """What is wrong where nothing more happens by itself, also while the cause of a fault lasts."""
    world = state.world
    rests = after is None or (any(ended(world)) and not any(lasting(world)) and not rebuild(world))
    wrongs = laws.settled(world) if rests else []
    if after is None:
        wrongs += laws.live(world, intervened=begin.intents > state.intents)
        wrongs += helped(world)
    return wrongs


def _asks(world: World) -> bool:
    """Whether an intent now may differ from one after the next transition.

    An intent is decided from the journal, the leader's reports and what clients get. An effect of a guard changes none
    of them unless it starts or stops an engine, and no intent changes what that guard does next.
    """
    _, effect = acts(world)
    return effect is None or isinstance(effect, StartEngine | StopEngine)


def _state(world: World, faults_: int, intents: int) -> State:
    world = canonical(world if faults_ else exhausted(world))
    return State(world, hash(identity(world)), faults_, intents)


def _branches(state: State, after: Transition | None, reduced: bool, anytime: bool) -> Iterator[tuple[str, State]]:
    world, left, intents = state.world, state.faults, state.intents
    if after is not None:
        yield after[0], _state(after[1], left, intents)
    if anytime:
        yield from _causes(state, after)
    if left:
        for label, hurt in distinct(world) if reduced else faults(world):
            if hurt is not world:
                yield f"FAULT {label}", _state(hurt, left - 1, intents)
    if intents and (not reduced or _asks(world)):
        for label, intent in operators(world):
            yield label, _state(intent, left, intents - 1)


def _causes(state: State, after: Transition | None) -> Iterator[tuple[str, State]]:
    """The cause of a fault ends now, or outlasts everything else: at a point where that makes a difference.

    While a guard acts, only what its own node lacks comes between two of its effects, as in `distinct`.
    """
    world = state.world
    acting, _ = acts(world)
    for label, freed in ended(world):
        if after and label != after[0] and (acting is None or acting.name in label):
            yield label, _state(freed, state.faults, state.intents)
    if after and after[0] in {label for label, _ in ended(world)} and (later := next(lasting(world), None)):
        yield later[0], _state(later[1], state.faults, state.intents)
