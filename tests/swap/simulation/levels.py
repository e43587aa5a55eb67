"""The explorations of `make test`, from the quickest to the longest, so that a broken machine is found soon."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.swap.simulation.explore import Result, explore
from tests.swap.simulation.scenarios import AGAIN, KINDS, MODES, REPLICAS, SHAPES, WIDE, deploying
from tests.swap.simulation.sharing import forget


@dataclass(frozen=True)
class Level:
    """One exploration."""

    mode: str
    faults: int
    intents: int
    turns: str = "good"
    automatic: bool = True
    beside: str = ""
    """A node with an engine of another service."""
    claim: float | None = None
    """That of each rank, in place of the shape's."""

    def __str__(self) -> str:
        bad = "" if self.turns == "good" else f", the new release {self.turns}"
        waits = "" if self.automatic else ", waits for promote"
        other = f", another service on {self.beside}, claim {self.claim:g}" if self.beside and self.claim else ""
        return f"{self.mode}{bad}{waits}{other}: {self.faults} faults, {self.intents + 1} intents"

    def run(self, limit: int = 10_000_000) -> Result:
        """Explore it. Raises Violation where a law is broken or more than `limit` states are visited."""
        start = deploying(self.mode, turns=self.turns, automatic=self.automatic, beside=self.beside, claim=self.claim)
        anytime = self.faults <= 1  # with two faults that is ten times the states
        return explore(start, faults_=self.faults, intents=self.intents, limit=limit, anytime=anytime)


BAD = ("wrong", "hung", "loading")
MAIN = ("first", "beside", "across", "in-place")
LEVELS = (
    *(Level(mode, 0, 1) for mode in MODES),
    *(Level(mode, 0, 1, automatic=False) for mode in MODES),
    *(Level(mode, 0, 0, turns) for mode in MODES for turns in BAD),
    *(Level(mode, 0, 1) for mode in AGAIN),
    *(Level(mode, 1, 0) for mode in (*MODES, *AGAIN)),
    *(Level(mode, 1, 0, "wrong") for mode in MODES),
    *(Level(mode, 1, 0, automatic=False) for mode in MODES),
    *(Level(shape, 1, 0) for shape in KINDS),
    *(Level(shape, 0, 1) for shape in (*REPLICAS, *WIDE)),
    *(Level(shape, 0, 0, turns) for shape in ("rolling", "rolling, three", *WIDE) for turns in BAD),
    *(Level(shape, 1, 0) for shape in (*REPLICAS, "rolling pairs")),
    *(Level("first: nothing to n2", 1, 0, beside="n2", claim=claim) for claim in (1.0, 2.0)),
    *(Level("across: n1 to n2", 1, 0, beside="n2", claim=claim) for claim in (1.0, 2.0)),
    *(Level("in-place: n1 to n1+n2", 1, 0, beside="n2", claim=claim) for claim in (1.0, 2.0)),
)
"""A second or a few each."""
DEEP = (Level("first", 1, 1),)
"""What `make test` adds: a fault and a second operator where no old release serves. Half a minute."""
LONG = (
    *(Level(shape, 0, 0, turns) for shape in SHAPES for turns in BAD),
    *(Level(shape, 1, 0) for shape in (*SHAPES, *WIDE) if shape not in (*KINDS, "rolling pairs")),
    *(Level(shape, 1, 0, turns) for shape in (*REPLICAS, *WIDE) for turns in BAD),
    *(Level(shape, 0, 1, automatic=automatic) for shape in SHAPES for automatic in (True, False)),
    *(Level(shape, 1, 0, turns) for shape in SHAPES for turns in BAD),
    *(Level(shape, 1, 0, automatic=False) for shape in SHAPES),
    *(Level(mode, 1, 1) for mode in MODES if mode != "first"),
    *(Level(mode, 2, 0) for mode in MODES),
    *(Level(mode, 2, 1) for mode in MAIN),
    *(Level(mode, 3, 0) for mode in MAIN),
)
"""What `make simulate` adds: every shape, two and three faults, and a fault or two with a second operator. Hours.

`make bite` judges by LEVELS, scenarios and walks alone.
"""


def main(levels: tuple[Level, ...]) -> None:
    """Run levels one after another, and print what each has visited."""
    gc.disable()  # values of an exploration refer to no cycle, and are millions
    for level in levels:
        start = time.monotonic()
        result = level.run()
        print(f"{level}: {result.states} states, {time.monotonic() - start:.1f} s", flush=True)
        forget()


def chosen() -> Iterator[Level]:
    """The levels that the first argument names: quick (without one), deep or long."""
    match sys.argv[1:]:
        case ["long"]:
            yield from (*LEVELS, *DEEP, *LONG)
        case ["deep"]:
            yield from (*LEVELS, *DEEP)
        case _:
            yield from LEVELS


if __name__ == "__main__":
    os.nice(5)
    main(tuple(chosen()))
