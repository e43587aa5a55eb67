"""Which calls of the machine's functions a check makes: a change that answers them all alike cannot be seen by it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import CodeType, FrameType, FunctionType

from tests.swap.simulation.checks import Check
from tests.swap.simulation.sharing import forget

Arguments = tuple[object, ...]
Calls = dict[str, list[Arguments]]
"""By function, such as `journal.Swap.reached`: the arguments of every call."""


@dataclass
class Recorded:
    """A check with the calls that it makes. `cpu_s`: the CPU time it takes."""

    check: Check
    cpu_s: float
    calls: Calls


def functions(module: str) -> dict[str, FunctionType]:
    """Return the functions of a module of the machine, those of its classes too, by qualified name."""
    loaded = import_module(f"sparkops.swap.{module}")
    members = [*vars(loaded).values()]
    members += [member for kind in members if isinstance(kind, type) for member in vars(kind).values()]
    unwrapped = (member.fget if isinstance(member, property) else member for member in members)
    return {
        function.__qualname__: function
        for function in unwrapped
        if isinstance(function, FunctionType) and function.__code__.co_filename == loaded.__file__
    }


def named(code: CodeType) -> tuple[str, ...]:
    """Return the names of a function's arguments: positional ones, then those by keyword only."""
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


@dataclass
class _Recorder:
    """A profiler that keeps the arguments of calls, each combination of objects once."""

    known: Mapping[int, tuple[str, tuple[str, ...]]]
    """By identity of a code object: the function and the names of its arguments."""
    calls: dict[str, dict[tuple[int, ...], Arguments]] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (function := self.known.get(id(frame.f_code))):
            name, names = function
            held = frame.f_locals
            values = (*(held[argument] for argument in names),)
            self.calls.setdefault(name, {}).setdefault((*map(id, values),), values)


def record(modules: tuple[str, ...], check: Check) -> Recorded:
    """Run a check on the unchanged machine and record its calls."""
    known = {
        id(function.__code__): (f"{module}.{name}", named(function.__code__))
        for module in modules
        for name, function in functions(module).items()
    }
    recorder = _Recorder(known)
    forget()
    begun_s = time.process_time()
    sys.setprofile(recorder)
    try:
        check.run()
    finally:
        sys.setprofile(None)
    cpu_s = time.process_time() - begun_s
    return Recorded(check, cpu_s, {name: [*calls.values()] for name, calls in recorder.calls.items()})


def differs(calls: list[Arguments], original: FunctionType, changed: FunctionType) -> bool:
    """Return whether a changed function answers one of these calls in another way. What cannot be repeated may."""
    return any(
        any(isinstance(value, Iterator) for value in values) or _answer(original, values) != _answer(changed, values)
        for values in calls
    )


def _answer(function: FunctionType, values: Arguments) -> object:
    """Return the result of a call, or the error that it raises."""
    names, count = named(function.__code__), function.__code__.co_argcount
    try:
        result = function(*values[:count], **dict(zip(names[count:], values[count:], strict=True)))
        return [*result] if isinstance(result, Iterator) else result
    except (ArithmeticError, AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError) as error:
        return repr(error)
