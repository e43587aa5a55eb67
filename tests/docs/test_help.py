"""The --help of every verb is complete: purpose, an example that the program takes, exit codes, names of values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from sparkops.operator.cli.main import command
from sparkops.operator.cli.verbs import VERBS
from tests.docs.test_commands import refusal

EXAMPLE = re.compile(r"Example: (sparkops .+)")
OTHERWISE = {
    "demo",
    "deploy",
    "doctor",
    "fit",
    "gateway move",
    "gateway rebuild",
    "import",
    "init",
    "models verify",
    "node cordon",
    "node drain",
    "node trust",
    "node return",
    "node uncordon",
    "plan",
    "probe",
    "promote",
    "recipe render",
    "rollback",
    "status",
    "stop",
    "up",
}
"""Verbs whose exit codes say more than whether an error was printed."""


def verbs() -> dict[str, tuple[Any, Any]]:
    """Return each verb that does something, with its context."""
    program: Any = command()
    parent = program.make_context("sparkops", ["status"])
    return {
        context.command_path.removeprefix("sparkops "): (verb, context)
        for name, entry in VERBS.items()
        for verb, context in leaves(entry.load(name), name, parent)
    }


def leaves(verb: Any, name: str, parent: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a verb, or the verbs below it."""
    context = verb.context_class(verb, info_name=name, parent=parent)
    if not hasattr(verb, "resolve_command"):
        yield verb, context
        return
    for inner in verb.list_commands(context):
        yield from leaves(verb.verbs[inner].load(inner), inner, context)


LEAVES = verbs()


@pytest.mark.parametrize("name", LEAVES)
def test_each_verb_has_a_purpose_and_an_example_that_the_program_takes(name: str) -> None:
    text = LEAVES[name][0].help
    [example] = EXAMPLE.findall(text)

    assert text.splitlines()[0]
    assert example.startswith(f"sparkops {name}")
    assert refusal(example) == ""


def test_verbs_with_exit_codes_of_their_own_state_them() -> None:
    assert {name for name in OTHERWISE if "Exit code" not in LEAVES[name][0].help} == set()
    assert set(LEAVES) >= OTHERWISE


@pytest.mark.parametrize("name", LEAVES)
def test_values_have_names_and_flags_no_opposite_that_nobody_needs(name: str) -> None:
    verb, context = LEAVES[name]
    shown_ones = (param for param in verb.get_params(context) if not getattr(param, "hidden", False))
    records = [param.get_help_record(context) for param in shown_ones]
    shown = [name for name, _ in records]

    assert [name for name, text in records if "<" in name or not text.partition("[")[0].strip()] == []
    assert [piece for piece in verb.collect_usage_pieces(context) if "{" in piece] == []
    assert [option for option in shown if "--no-" in option and "/" in option] in ([], ["--build / --no-build"])
