"""Whether a version can read what the guard of a node keeps, found out by the program that a new image runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.guard.disk.state import Membership, State
from sparkops.names import Slot
from sparkops.swap.follower import Record
from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.model import Deployment, RankSpec, Replica
from tests.guard.lead.test_gateway_front import released

pytestmark = pytest.mark.local


def check(directory: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SPARKOPS_STATE": str(directory)}
    return subprocess.run(
        [sys.executable, "-m", "sparkops.guard.check"], env=env, check=False, capture_output=True, text=True
    )


@pytest.fixture
def state(tmp_path: Path) -> State:
    kept_state = State(tmp_path / "v2")
    kept_state.write_membership(Membership("n1", b"k"))
    kept_state.write_journal(Journal("chat", "n1"))
    kept_state.write_record("chat", Record(copy=Journal("chat", "n1")))
    kept_state.note_by_hand("chat", frozenset({"q-1"}))
    return kept_state


def test_what_can_be_read_passes_and_nothing_is_written(state: State) -> None:
    files = {file: file.read_bytes() for file in state.directory.rglob("*") if file.is_file()}
    for file in (state.directory, *state.directory.rglob("*")):
        file.chmod(0o500 if file.is_dir() else 0o400)

    assert (check(state.directory).returncode, check(state.directory).stderr) == (0, "")
    assert {file: file.read_bytes() for file in state.directory.rglob("*") if file.is_file()} == files


def test_an_empty_volume_passes(tmp_path: Path) -> None:
    assert check(tmp_path).returncode == 0


@pytest.mark.parametrize("name", ["services/chat/journal", "services/chat/record", "services/chat/by_hand.json"])
def test_what_is_damaged_is_named_with_what_to_do(state: State, name: str) -> None:
    (state.directory / name).write_bytes(b"garbage")

    failed = check(state.directory)

    assert failed.returncode == 1
    assert f"{state.directory / name}: unreadable" in failed.stderr
    assert "next: " in failed.stderr


@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 1])
def test_a_journal_of_another_format_is_named(state: State, schema: int) -> None:
    state.write_journal(Journal("chat", "n1", schema=schema))

    failed = check(state.directory)

    assert failed.returncode == 1
    assert f"journal: unreadable: Journal has format {schema}, expected {SCHEMA}" in failed.stderr
    assert "next: " in failed.stderr


def deployed(state: State, rank: RankSpec, *, as_previous: bool = False) -> None:
    """Let a rank be of the release in service, or of the one before it."""
    release = Deployment("chat-abcdef0123", Slot.GREEN, (Replica((rank,)),))
    journal = Journal("chat", "n1", revision=7)
    state.write_journal(replace(journal, previous=release) if as_previous else replace(journal, active=release))


def newer() -> RankSpec:
    """A rank whose spec a newer version wrote: one more key of the recipe."""
    rank = next(released("127.0.0.1").heads)
    spec = json.loads(rank.spec)
    spec["recipe"]["swap"] = {**spec["recipe"].get("swap", {}), "a_key_of_the_next_version": 1}
    return replace(rank, spec=json.dumps(spec), container="q-r0")


def test_an_engine_whose_spec_a_newer_version_wrote_is_named_with_what_to_do(state: State) -> None:
    deployed(state, newer())

    failed = check(state.directory)

    assert failed.returncode == 1
    assert "chat: the spec of q-r0 was written by another version: swap: unknown key" in failed.stderr
    assert "next: Use the version of sparkops that last deployed chat, or a newer one." in failed.stderr


def test_the_engine_of_the_boot_record_is_read_too(state: State) -> None:
    state.write_record("chat", Record(armed=newer()))

    assert "the spec of q-r0" in check(state.directory).stderr


def test_a_spec_that_can_be_read_passes_and_one_that_nothing_runs_by_stops_no_update(state: State) -> None:
    deployed(state, next(released("127.0.0.1").heads))
    assert check(state.directory).stderr == ""

    deployed(state, newer(), as_previous=True)
    assert check(state.directory).stderr == ""
