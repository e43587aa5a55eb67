"""The trial of one change of the machine, in a process of its own."""

from __future__ import annotations

import math
import multiprocessing
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from types import FrameType, FunctionType

from tests.swap.simulation.installing import install, rebind
from tests.swap.simulation.mutations import Mutation
from tests.swap.simulation.recording import Recorded, differs
from tests.swap.simulation.sharing import forget

FORK = multiprocessing.get_context("fork")
PATIENCE = 20
"""A check that takes so many times its usual CPU time does not end."""


@dataclass(frozen=True)
class Result:
    """The check that finds a change, and the law that it breaks; both empty where no check does."""

    check: str = ""
    why: str = ""
    differ: int = 0
    """How many checks make a call that the changed function answers in another way."""


@dataclass
class _Trial:
    """A change and the checks that may find it. `functions`: the unchanged and the changed function, if it is one."""

    mutation: Mutation
    recorded: Sequence[Recorded]
    functions: tuple[FunctionType, FunctionType] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        module, text = self.mutation.module, self.mutation.text
        if self.mutation.function:
            self.functions = install(module, self.mutation.function, text)
        else:
            rebind(module, text)

    def attempt(self, number: int) -> bool:
        """Run a check, and return False where the change makes no difference to it."""
        item = self.recorded[number]
        if self.functions:
            calls = item.calls.get(f"{self.mutation.module}.{self.mutation.function}", [])
            if not differs(calls, *self.functions):
                return False
        forget()
        signal.signal(signal.SIGPROF, _endless)
        signal.setitimer(signal.ITIMER_PROF, 1 + PATIENCE * item.cpu_s)
        item.check.run()
        signal.setitimer(signal.ITIMER_PROF, 0)
        return True


_TRIALS: list[_Trial] = []
"""The trial of this process."""


def _begin(mutation: Mutation, recorded: Sequence[Recorded]) -> None:
    _TRIALS.append(_Trial(mutation, recorded))


def _attempt(number: int) -> bool:
    return _TRIALS[-1].attempt(number)


def _endless(_: int, __: FrameType | None) -> None:
    raise TimeoutError("it does not end")


def judge(mutation: Mutation, recorded: Sequence[Recorded], first: str = "", bound_s: float = math.inf) -> Result:
    """Try a change with each check in turn, `first` before all others, until one fails.

    `bound_s`: the CPU time of those that it makes a difference to, after which no other one is tried.
    """
    differ, spent_s = 0, 0.0
    with ProcessPoolExecutor(1, FORK, _begin, (mutation, recorded)) as process:
        for number, item in sorted(enumerate(recorded), key=lambda one: one[1].check.name != first):
            trial = process.submit(_attempt, number)
            if error := trial.exception():
                return Result(item.check.name, _last_line(error), differ + 1)
            if trial.result():
                differ, spent_s = differ + 1, spent_s + item.cpu_s
            if spent_s > bound_s:
                break
    return Result(differ=differ)


def _last_line(error: BaseException) -> str:
    return next(reversed([line for line in str(error).splitlines() if line.strip()]), type(error).__name__)
