"""What one guard tells the others, over real HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from sparkops.guard import word
from sparkops.guard.store import Store
from sparkops.plan.journal import Front, Mode, Phase, Swap, Verdict
from sparkops.plan.lock import Clock
from sparkops.plan.takeover import Word
from tests.plan.places import GATEWAY, placed
from tests.probes.server import free_port

HERE = Front(node="n1", address="127.0.0.1")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    swap = Swap(
        deploy="d1", mode=Mode.ACROSS, gateway=GATEWAY, green=placed("new", "green"), phase=Phase.BAKE,
        verdict=Verdict.REVERT,
    )  # fmt: skip
    made = Store(tmp_path / "state", lambda: Clock(1000.0, "boot-1"))
    made.change("chat", lambda j, _: j.model_copy(update={"swap": swap, "active": placed("old", "blue")}))
    return made


def test_the_other_guards_hear_the_verdict(store: Store) -> None:
    port = free_port()
    with word.tell(store, "127.0.0.1", port):
        told = word.ask(HERE, "chat", port)

    assert told == Word(deploy="d1", verdict=Verdict.REVERT, active="n1/old-blue-r0")


@pytest.mark.parametrize("path", ["other", "", "../state/chat", "chat.json", "%2e%2e/chat"])
def test_what_is_no_service_is_not_found(store: Store, path: str) -> None:
    port = free_port()
    with word.tell(store, "127.0.0.1", port):
        reply = requests.get(f"http://127.0.0.1:{port}/{path}", timeout=5)
        asked = word.ask(HERE, path, port)

    assert (reply.status_code, asked) == (404, None)


def test_a_journal_that_cannot_be_read_gives_no_word(store: Store) -> None:
    (store.directory / "chat.json").write_text("{")
    port = free_port()
    with word.tell(store, "127.0.0.1", port):
        assert word.ask(HERE, "chat", port) is None


def test_where_nobody_listens_there_is_no_word() -> None:
    assert word.ask(HERE, "chat", free_port()) is None


def test_only_questions_are_answered(store: Store) -> None:
    port = free_port()
    with word.tell(store, "127.0.0.1", port):
        assert requests.post(f"http://127.0.0.1:{port}/chat", data="x", timeout=5).status_code == 501
