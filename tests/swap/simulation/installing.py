"""A change of the machine in a process that has already imported it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from types import CodeType, FunctionType

from tests.swap.simulation.recording import functions


def install(module: str, name: str, text: str) -> tuple[FunctionType, FunctionType]:
    """Change a function to what the new text of its module says. Returns copies of the old and the new function."""
    function = functions(module)[name]
    new = next(code for code in _codes(compile(text, module, "exec", dont_inherit=True)) if code.co_qualname == name)
    pair = _copied(function, function.__code__), _copied(function, new)
    function.__code__ = new
    return pair


def _copied(function: FunctionType, code: CodeType) -> FunctionType:
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def rebind(module: str, text: str) -> None:
    """Give every module the constants of the new text of one module."""
    changed = vars(import_module(f"sparkops.swap.{module}"))
    before = dict(changed)
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    exec(compile(tree, module, "exec", dont_inherit=True), changed)
    machine = [
        loaded for name, loaded in sys.modules.items() if name.startswith(("sparkops.swap", "tests.swap.simulation"))
    ]
    for name, value in before.items():
        for loaded in machine:
            if vars(loaded).get(name) is value:
                setattr(loaded, name, changed[name])
