"""A journal as JSON is read as it was, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.model import Mode, RankSpec
from sparkops.swap.wire import OtherFormat, WireError, dump, load
from tests.swap.test_events import begun

JOURNALS = [Journal("chat", "n1"), *(begun(mode) for mode in Mode), begun(Mode.IN_PLACE).noted("i1", "done", hold="h")]


STOPPING = Journal("chat", "n1", without=frozenset({"n2"}), stopped=(RankSpec("n2", "c", 1.0),), stopping=True)


@pytest.mark.parametrize("journal", [*JOURNALS, STOPPING])
def test_a_journal_is_read_as_it_was_written(journal: Journal) -> None:
    assert load(Journal, dump(Journal, journal)) == journal


@pytest.mark.parametrize(
    "change",
    [
        {"service": 3},
        {"term": "1"},
        {"peers": "n2"},
        {"stopping": 1},
        {"active": {"release": "r1", "slot": "red", "replicas": []}},
        {"active": {"release": "r1", "slot": "blue", "replicas": []}},
        {"swap": []},
    ],
    ids=str,
)
def test_what_is_no_journal_of_this_version_is_refused(change: dict[str, Any]) -> None:
    plain = {**json.loads(dump(Journal, JOURNALS[1])), **change}

    with pytest.raises(WireError, match=r"^Journal: "):
        load(Journal, json.dumps(plain).encode())


@pytest.mark.parametrize(
    ("schema", "step"),
    [
        (SCHEMA + 1, "Update sparkops on this machine to the version that wrote it or newer."),
        (
            SCHEMA - 1,
            "With the version that wrote it: sparkops stop SERVICE; sparkops node uninstall NODE. "
            "Then deploy with this one.",
        ),
    ],
)
@pytest.mark.parametrize("changed", [{}, {"leader": 3}], ids=["as it was", "changed"])
def test_a_journal_of_another_format_is_refused_with_its_format(
    schema: int, step: str, changed: dict[str, Any]
) -> None:
    plain = {**json.loads(dump(Journal, JOURNALS[1])), "schema": schema, **changed}

    with pytest.raises(OtherFormat) as refused:
        load(Journal, json.dumps(plain).encode())

    assert str(refused.value) == f"Journal has format {schema}, expected {SCHEMA}"
    assert refused.value.next_step == step


def test_a_journal_without_a_leader_is_refused_and_a_further_field_is_not() -> None:
    with pytest.raises(WireError, match="leader"):
        load(Journal, b'{"service": "chat"}')
    assert load(Journal, b'{"service": "chat", "leader": "n1", "later": 1}') == Journal("chat", "n1")
