"""An option that was given is kept or refused by name: on each way through a verb, it reads each of its options."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from importlib import import_module

import pytest

from sparkops.operator.cli.verbs import GROUPS, Family, Verb

pytestmark = pytest.mark.unit

UNREAD = {
    "deploy": {"blue_green", "detach"},  # every deploy is blue-green
    "plan": {"blue_green"},
    # With --dry-run nothing is sent that could wait or be followed.
    "build": {"wait"},
    "node uninstall": {"wait"},
    "prune": {"wait"},
    "rollback": {"wait", "detach"},
    "up": {"detach"},
    # A lock that fits stays as it is.
    "recipe lock": {"node", "build", "yes"},
}
"""What may stay unread on some way, where nothing happens that it could change."""


def verbs() -> Iterator[tuple[str, Verb]]:
    for group in GROUPS.values():
        for name, verb in group.items():
            family = verb.verbs if isinstance(verb, Family) else {"": verb}
            yield from ((f"{name} {inner}".strip(), one) for inner, one in family.items())


def reads(*nodes: ast.AST | None) -> frozenset[str]:
    found = (inner for node in nodes if node for inner in ast.walk(node))
    return frozenset(one.id for one in found if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))


def ways(statements: Sequence[ast.stmt]) -> set[tuple[frozenset[str], type[ast.stmt] | None]]:
    """Return each way through the statements: the names that it reads, and the statement that ends the function."""
    known: set[tuple[frozenset[str], type[ast.stmt] | None]] = {(frozenset(), None)}
    for statement in statements:
        match statement:
            case ast.If(test=test):
                inner = [
                    (reads(test) | names, end)
                    for part in (statement.body, statement.orelse)
                    for names, end in ways(part)
                ]
            case ast.With(items=items):
                head = reads(*(item.context_expr for item in items))
                inner = [(head | names, end) for names, end in ways(statement.body)]
            case ast.For(iter=over):  # of a loop over nothing, nothing happens
                inner = [(reads(over) | names, end) for names, end in ways(statement.body)]
            case ast.Try():
                inner = [*ways(statement.body)]
            case ast.Return() | ast.Raise():
                inner = [(reads(statement), type(statement))]
            case _:
                inner = [(reads(statement), None)]
        open_ = {way for way in known if way[1] is None}
        known = (known - open_) | {(names | more, end) for names, _ in open_ for more, end in inner}
    return known


@pytest.mark.parametrize(("name", "verb"), [pytest.param(name, verb, id=name) for name, verb in verbs()])
def test_a_verb_reads_each_of_its_options_on_every_way_through_it(name: str, verb: Verb) -> None:
    function = getattr(import_module(f"sparkops.operator.cli.{verb.module}"), verb.attribute)
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef)
    options = {argument.arg for argument in (*tree.args.args, *tree.args.kwonlyargs)} - {"context"}

    unread = {option for names, end in ways(tree.body) if end is not ast.Raise for option in options - names}

    assert unread == UNREAD.get(name, set())


def test_a_dropped_option_is_found() -> None:
    (tree,) = ast.parse("def verb(a, b):\n    if a:\n        return\n    print(b)").body
    assert isinstance(tree, ast.FunctionDef)

    assert ways(tree.body) == {(frozenset("a"), ast.Return), (frozenset({"a", "b", "print"}), None)}
