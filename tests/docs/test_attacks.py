"""The table of attacks in docs/evidence/attacks.md: each row names tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import Page
from tests.places import ROOT

HEAD = "| who | tries |"
ROWS = [
    line.strip("|").split("|")
    for line in Page("docs/evidence/attacks.md").text.partition(HEAD)[2].partition("\n\n")[0].splitlines()[2:]
]
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


@pytest.fixture(scope="module")
def tests() -> frozenset[str]:
    """The names of all tests."""
    return frozenset(name for file in (ROOT / "tests").rglob("test_*.py") for name in DEFINED.findall(file.read_text()))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[1].split()))
def test_each_attack_has_tests(row: list[str], tests: frozenset[str]) -> None:
    named = re.findall(r"`(\w+)`", row[3])

    assert named
    assert set(named) <= tests


def test_every_kind_of_attacker_has_a_row() -> None:
    attackers = {" ".join(row[0].split()) for row in ROWS}

    kinds = {"stranger", "client with a key", "user of a node", "author of a recipe"}
    assert attackers >= kinds | {"compromised node", "compromised laptop"}
