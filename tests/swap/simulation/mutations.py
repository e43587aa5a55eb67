"""Changes of the machine's source: each condition deleted, each pair of effects swapped, and handwritten faults."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from typing import Any

from tests.places import ROOT
from tests.swap.simulation.bite_list import HANDWRITTEN

MACHINE = ROOT / "sparkops" / "swap"
MODULES = ("leader", "phases", "follower", "orders", "journal", "intents", "fleet_state", "model", "rolling", "rebuild")
MOVABLE = (ast.If, ast.For, ast.Expr)
Edit = tuple[str, Callable[[Any], object]]
"""A change of one node of a syntax tree: its description, and the function that edits the node."""


@dataclass(frozen=True)
class Mutation:
    """A module with one change. `name` is unique among all changes."""

    module: str
    function: str
    """The qualified name of the changed function; empty for a constant."""
    name: str
    make: Callable[[], str]

    @cached_property
    def text(self) -> str:
        """The new text of the module."""
        return self.make()


Found = tuple[str, str, Callable[[], str]]
"""The changed function, a description, and what makes the module's new text."""


def mutations(modules: Iterable[str] = MODULES) -> Iterator[Mutation]:
    """Return every change of these modules."""
    for module in modules:
        counts: Counter[str] = Counter()
        source = (MACHINE / f"{module}.py").read_text()
        tree = ast.parse(source)
        for function, description, text in (*_faults(module, source, tree), *_edited(tree)):
            where = f"{module}.{function or 'constant'}: {description}"
            counts[where] += 1
            yield Mutation(module, function, f"{where} ({counts[where]})" if counts[where] > 1 else where, text)


def _faults(module: str, source: str, tree: ast.Module) -> Iterator[Found]:
    """Return the handwritten faults of a module. Raises ValueError where the source has changed."""
    for fault in HANDWRITTEN:
        if fault.module == module:
            if source.count(fault.old) != 1:
                raise ValueError(f"{module}: `{fault.old}` occurs {source.count(fault.old)} times, expected 1")
            line = source[: source.index(fault.old)].count("\n") + 1
            function = next(name for name, node in _functions(tree) if node.lineno <= line <= (node.end_lineno or 0))
            yield function, f"rule {fault.rule}: {fault.what}", partial(source.replace, fault.old, fault.new)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Return every function of a module and of its classes, with its qualified name."""
    classes = [(f"{node.name}.", node.body) for node in tree.body if isinstance(node, ast.ClassDef)]
    for prefix, body in (("", tree.body), *classes):
        yield from ((prefix + node.name, node) for node in body if isinstance(node, ast.FunctionDef))


def _edited(tree: ast.Module) -> Iterator[Found]:
    functions = {child: name for name, function in _functions(tree) for child in ast.walk(function)}
    for number, node in enumerate(ast.walk(tree)):
        for description, edit in _edits(node):
            yield functions.get(node, ""), description, partial(_applied, tree, number, edit)


def _applied(tree: ast.Module, number: int, edit: Callable[[Any], object]) -> str:
    changed = copy.deepcopy(tree)
    edit(next(node for index, node in enumerate(ast.walk(changed)) if index == number))
    return ast.unparse(ast.fix_missing_locations(changed))


def _edits(node: ast.AST) -> Iterator[Edit]:
    yield from _conditions(node)
    if isinstance(node, ast.Tuple) and len(node.elts) > 1 and all(map(_is_constant, node.elts)):
        for index, value in enumerate(node.elts):
            yield f"`{ast.unparse(node)}` without `{ast.unparse(value)}`", partial(_remove, index=index)
    for block in ("body", "orelse"):
        statements = getattr(node, block, None)
        if isinstance(statements, list):
            yield from _swaps(block, statements)
    if isinstance(node, ast.If) and node.orelse:
        yield f"branches of `{ast.unparse(node.test)}` exchanged", _exchange


def _conditions(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.BoolOp(values=values):
            for index, value in enumerate(values):
                yield f"without `{ast.unparse(value)}`", partial(_drop, index=index)
        case ast.If(test=test) | ast.IfExp(test=test):
            yield f"always `{ast.unparse(test)}`", partial(_decide, answer=True)
            yield f"never `{ast.unparse(test)}`", partial(_decide, answer=False)
        case ast.Return(value=ast.Compare() | ast.UnaryOp(op=ast.Not()) as test):
            yield f"always `{ast.unparse(test)}`", partial(_return, answer=True)
            yield f"never `{ast.unparse(test)}`", partial(_return, answer=False)
        case ast.comprehension(ifs=[_, *_]):
            yield "any item", lambda target: target.ifs.clear()
        case _:
            return


def _is_constant(value: ast.expr) -> bool:
    """Return whether a value is a member of an enumeration, as in a tuple of phases or of engine states."""
    return isinstance(value, ast.Starred | ast.Attribute) and ast.unparse(value).lstrip("*_")[0].isupper()


def _swaps(block: str, statements: list[ast.stmt]) -> Iterator[Edit]:
    """Return each pair of statements of a block that could stand in the other order."""
    for one, other in combinations(range(len(statements)), 2):
        between = statements[one : other + 1]
        documents = isinstance(between[0], ast.Expr) and isinstance(between[0].value, ast.Constant)
        if all(isinstance(statement, MOVABLE) for statement in between) and not documents and not _alike(between):
            first, second = _text(between[0]), _text(between[-1])
            yield f"`{second}` before `{first}`", partial(_swap, block=block, one=one, other=other)


def _alike(statements: list[ast.stmt]) -> bool:
    """Return whether conditions have one body, so that it makes no difference which one is checked first."""
    bodies = {"".join(map(ast.dump, item.body)) if isinstance(item, ast.If) else id(item) for item in statements}
    return len(bodies) == 1


def _text(statement: ast.stmt) -> str:
    return " ".join(ast.unparse(statement).split())[:36]


def _drop(target: ast.BoolOp, index: int) -> None:
    target.values.pop(index)


def _remove(target: ast.Tuple, index: int) -> None:
    target.elts.pop(index)


def _decide(target: ast.If | ast.IfExp, answer: bool) -> None:
    target.test = ast.Constant(answer)


def _return(target: ast.Return, answer: bool) -> None:
    target.value = ast.Constant(answer)


def _exchange(target: ast.If) -> None:
    target.body, target.orelse = target.orelse, target.body


def _swap(target: Any, block: str, one: int, other: int) -> None:
    statements = getattr(target, block)
    statements[one], statements[other] = statements[other], statements[one]
