"""The guard's ear: a real process and its pipes, and the same questions without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkops.guard.serve import Ear
from sparkops.guard.store import Store
from sparkops.nodes.local import LocalNode
from sparkops.plan.journal import SCHEMA, Journal
from sparkops.plan.lock import LEASE_S, Clock
from tests.plan.places import placed

PLAIN: dict[str, Any] = {"generation": 1, "timeout_s": 5.0, "stdin": ""}


@dataclass
class Asker:
    """Asks an ear as a deploy does: text in, text out."""

    ear: Ear

    def say(self, line: str) -> Any:
        return self.ear.answer(line)

    def ask(self, op: str, service: str = "chat", **words: Any) -> Any:
        return self.say(json.dumps({"op": op, "service": service, **words}))

    def take(self, deploy: str = "d1") -> int:
        generation: int = self.ask("acquire", owner=f"{deploy}@desk", deploy=deploy, loads=False)["ok"]["journal"][
            "generation"
        ]
        return generation


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def guard(state: Path) -> Asker:
    return Asker(Ear(Store(state), LocalNode("n1")))


@contextmanager
def serving(state: Path) -> Iterator[subprocess.Popen[str]]:
    """The ear as a process of its own, as `docker exec` starts it."""
    with subprocess.Popen(
        [sys.executable, "-m", "sparkops.guard.serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "SPARKOPS_STATE": str(state), "SPARKOPS_NODE": "n1"},
        text=True,
    ) as process:
        yield process


def test_a_process_answers_each_line_with_a_line_until_its_stdin_ends(state: Path) -> None:
    questions = [
        {"op": "read", "service": "chat"},
        {"op": "fly", "service": "chat"},
        {"op": "acquire", "service": "chat", "owner": "ann@desk", "deploy": "d1", "loads": False},
        {"op": "run", "service": "chat", "argv": ["sh", "-c", "cat; echo hi >&2; exit 3"], **PLAIN, "stdin": "in\n"},
        {"op": "release", "service": "chat", "generation": 1},
        {"op": "services", "service": ""},
    ]
    with serving(state) as process:
        out, _ = process.communicate("not JSON\n" + "".join(json.dumps(each) + "\n" for each in questions))

    assert process.returncode == 0
    unclear, read, unknown, acquired, ran, released, services = map(json.loads, out.splitlines())
    assert "does not understand 'not JSON" in unclear["error"]
    assert read["ok"]["journal"] == Journal(service="chat").model_dump(mode="json")
    assert "does not understand" in unknown["error"]
    assert acquired["ok"]["journal"]["holder"]["owner"] == "ann@desk"
    assert ran == {"ok": {"exit_code": 3, "stdout": "in\n", "stderr": "hi\n"}}
    assert (released, services) == ({"ok": None}, {"ok": ["chat"]})


def test_a_question_without_words_is_an_answer_and_the_next_one_is_heard(guard: Asker) -> None:
    for line in ("", "[]", "7", "{}", '{"op": "put"}', '{"op": "acquire", "service": "chat"}', '{"op": {}}'):
        said = guard.say(line)
        assert said["error"].startswith(f"the guard does not understand {line!r}: ")
        assert (said["next_step"], said["exit_code"]) == ("It may be of another version; a deploy replaces it.", 1)

    assert guard.ask("services") == {"ok": []}


def test_a_journal_of_a_newer_sparkops_is_not_written(guard: Asker) -> None:
    newer = {**Journal(service="chat").model_dump(mode="json"), "colour": "blue"}

    said = guard.ask("put", generation=guard.take(), journal=newer)

    assert "Extra inputs are not permitted" in said["error"]
    assert "colour" not in guard.ask("read")["ok"]["journal"]


@pytest.mark.parametrize("text", ["{", '{"service": "chat", "version": 9}'], ids=["truncated", "newer"])
def test_a_journal_that_cannot_be_read_is_answered_with_its_exit_code(guard: Asker, state: Path, text: str) -> None:
    state.mkdir()
    (state / "chat.json").write_text(text)

    for op in ("read", "acquire", "put", "run", "hold"):
        words: dict[str, Any] = {
            "owner": "a",
            "deploy": "d",
            "loads": False,
            "journal": {"service": "chat"},
            "argv": ["true"],
            "reason": "x",
            **PLAIN,
        }
        said = guard.ask(op, **words)
        assert (said["exit_code"], f"the journal {state}/chat.json cannot be read" in said["error"]) == (7, True)


def test_a_second_operator_is_told_who_holds_the_lock(guard: Asker) -> None:
    guard.take("d1")

    said = guard.ask("acquire", owner="bob@lap", deploy="d2", loads=False)

    assert said == {
        "error": "chat: locked by d1@desk for 0 s; lease ends in 90 s",
        "next_step": "sparkops status shows it; `--wait` waits for it.",
        "exit_code": 4,
    }


def test_after_a_takeover_the_old_holder_s_command_is_not_executed(guard: Asker, tmp_path: Path) -> None:
    old = guard.take("d1")
    guard.ask("release", generation=old)
    new = guard.take("d2")

    argv = {generation: ["touch", str(tmp_path / f"by-{generation}")] for generation in (old, new)}
    stale, current = (guard.ask("run", argv=argv[each], **{**PLAIN, "generation": each}) for each in (old, new))

    assert stale["error"] == "another deploy has taken over chat"
    assert stale["exit_code"] == 4
    assert current["ok"]["exit_code"] == 0
    assert [file.name for file in tmp_path.glob("by-*")] == [f"by-{new}"]


@pytest.mark.parametrize("op", ["renew", "put", "run"])
def test_every_change_of_an_old_holder_is_refused(guard: Asker, op: str) -> None:
    old = guard.take("d1")
    guard.ask("release", generation=old)
    guard.take("d2")
    before = guard.ask("read")["ok"]["journal"]

    words: dict[str, Any] = {
        **PLAIN,
        "generation": old,
        "journal": {"service": "chat", "active": None},
        "argv": ["true"],
    }
    assert guard.ask(op, **words)["exit_code"] == 4
    assert guard.ask("read")["ok"]["journal"] == before


@pytest.mark.parametrize(("later_s", "boot", "holds"), [(0.0, "b1", True), (LEASE_S, "b1", False), (0.0, "b2", False)])
def test_who_asks_is_told_of_nobody_whose_lease_has_ended(
    state: Path, later_s: float, boot: str, *, holds: bool
) -> None:
    now = [Clock(5.0, "b1")]
    guard = Asker(Ear(Store(state, lambda: now[0]), LocalNode("n1")))
    generation = guard.take()
    now[0] = Clock(5.0 + later_s, boot)

    holder = guard.ask("read")["ok"]["journal"]["holder"]

    assert (holder["owner"] if holder else None) == ("d1@desk" if holds else None)
    assert "error" not in guard.ask("renew", generation=generation)  # it may go on: nobody has taken over


def test_the_holder_writes_and_reads_its_journal_back(guard: Asker) -> None:
    journal = Journal(service="chat", active=placed("new", "green"))

    said = guard.ask("put", generation=guard.take(), journal=journal.model_dump(mode="json"))["ok"]

    assert said["journal"]["active"] == placed("new", "green").model_dump(mode="json")
    assert (said["journal"]["generation"], said["journal"]["version"]) == (1, SCHEMA)
    assert said["journal"] == guard.ask("read")["ok"]["journal"]
    assert said["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_command_that_cannot_be_started_is_told_with_its_next_step(guard: Asker) -> None:
    said = guard.ask("run", argv=["/nowhere/docker"], **{**PLAIN, "generation": guard.take()})

    assert said["error"] == "n1: `/nowhere/docker` cannot be started on this machine: No such file or directory"


def test_a_command_that_does_not_end_is_told(guard: Asker) -> None:
    said = guard.ask("run", argv=["sleep", "30"], **{**PLAIN, "generation": guard.take(), "timeout_s": 0.05})

    assert said["error"] == "n1: `sleep 30` did not end within 0.05 s"


def test_a_hold_refuses_everybody_until_it_ends(guard: Asker) -> None:
    guard.ask("hold", reason="a new fan")
    assert guard.ask("acquire", owner="a", deploy="d", loads=False)["error"] == "chat is on hold: a new fan"

    guard.ask("hold", reason=None)
    assert guard.take() == 1


def test_what_somebody_is_changing_cannot_be_put_on_hold(guard: Asker) -> None:
    generation = guard.take()

    refused = guard.ask("hold", reason="a new fan")
    assert (refused["exit_code"], refused["error"]) == (4, "d1@desk is changing chat just now")

    guard.ask("release", generation=generation)
    assert "ok" in guard.ask("hold", reason="a new fan")


def test_what_was_remembered_is_told(guard: Asker) -> None:
    guard.ask("remember", event={"event": "deployed", "release": "q-1"})

    [event] = guard.ask("history")["ok"]

    assert {**event, "at": ""} == {"at": "", "event": "deployed", "release": "q-1"}


def test_a_full_disk_is_an_answer(guard: Asker, state: Path) -> None:
    generation = guard.take()
    (state / "chat.new").symlink_to("/dev/full")

    said = guard.ask("renew", generation=generation)

    assert said["error"] == "the guard could not do it: [Errno 28] No space left on device"


def test_a_name_that_leaves_the_directory_is_refused(guard: Asker, state: Path) -> None:
    said = guard.ask("remember", service="../chat", event={})

    assert said["error"] == "'../chat' is not the name of a service"
    assert not state.exists()


def test_starts_and_what_is_left_of_failed_ones_are_kept(guard: Asker, state: Path) -> None:
    guard.ask("started", started={"release": "q-1", "stages": {"serving": 9.5}})
    path = guard.ask("keep", release="q-2", files={"log.txt": "one\n", "memory.csv": "two\n"})["ok"]

    assert guard.ask("starts") == {"ok": [{"release": "q-1", "stages": {"serving": 9.5}}]}
    assert {each.name: each.read_text() for each in Path(path).iterdir()} == {"log.txt": "one\n", "memory.csv": "two\n"}
    assert Path(path).parent == state / "failures" / "chat"


def test_what_answers_a_deploy_imports_nothing_heavy() -> None:
    """A swap waits for several such processes."""
    heavy = ("docker", "jinja2", "paramiko", "requests", "yaml", "sparkops.config.recipe")
    script = f"import sys, sparkops.guard.serve; print([name for name in {heavy} if name in sys.modules])"

    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
