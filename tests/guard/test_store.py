"""Journals on a disk: real files, real processes."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparkops.errors import Busy, SparkopsError
from sparkops.guard.store import STARTS, JournalUnreadable, Store, read_clock
from sparkops.plan import lock as rules
from sparkops.plan.journal import SCHEMA, Journal
from sparkops.plan.lock import LEASE_S, Clock, lease_left
from tests.plan.places import placed


@dataclass
class HandClock:
    """A clock that moves when a test says so."""

    now_s: float = 1000.0
    boot: str = "boot-1"

    def __call__(self) -> Clock:
        return Clock(self.now_s, self.boot)


@dataclass
class Shelf:
    """A store in a directory of its own."""

    directory: Path
    clock: HandClock = field(default_factory=HandClock)

    @property
    def store(self) -> Store:
        return Store(self.directory, self.clock)

    def take(self, deploy: str = "d1") -> int:
        return self.store.change("chat", lambda j, c: rules.acquire(j, f"{deploy}@desk", deploy, c)).generation


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "state")


def writer(*argv: str | int | Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.guard.writer", *map(str, argv)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_a_service_without_a_journal_has_an_empty_one(shelf: Shelf) -> None:
    assert shelf.store.read("chat") == Journal(service="chat")
    assert shelf.store.services() == []
    assert list(shelf.store.history("chat")) == []
    assert not shelf.directory.exists(), "reading changes nothing"


def test_what_was_written_is_read_by_the_next_process(shelf: Shelf) -> None:
    active = placed("new", "green")
    generation = shelf.take()
    shelf.store.change("chat", lambda j, _: rules.put(j, j.model_copy(update={"active": active}), generation))

    journal = Store(shelf.directory).read("chat")

    assert (journal.active, journal.generation, journal.version) == (active, 1, SCHEMA)
    assert shelf.store.services() == ["chat"]


def test_services_are_those_with_a_journal_whatever_else_lies_there(shelf: Shelf) -> None:
    for service in ("embed", "chat.v2", "a"):
        shelf.store.change(service, lambda journal, _: journal)
    for stray in ("Notes.json", ".json", "chat.txt", "old journal.json"):
        (shelf.directory / stray).write_text("{}")

    assert shelf.store.services() == ["a", "chat.v2", "embed"]


def test_a_refused_change_is_busy_and_writes_nothing(shelf: Shelf) -> None:
    shelf.take("d1")
    before = (shelf.directory / "chat.json").read_bytes()

    with pytest.raises(Busy, match=r"^chat: locked by d1@desk for 0 s; lease ends in 90 s$") as caught:
        shelf.take("d2")

    assert (caught.value.exit_code, caught.value.next_step) == (4, "sparkops status shows it; `--wait` waits for it.")
    assert (shelf.directory / "chat.json").read_bytes() == before


def test_a_writer_killed_anywhere_leaves_the_old_text_or_the_new_one(tmp_path: Path) -> None:
    with writer("killed", tmp_path) as process:
        said = process.communicate()[0].split()

    assert process.returncode == 0
    turn = said.index("new")
    assert said == ["old"] * turn + ["new"] * (len(said) - turn)
    assert turn >= 10, "it was killed at many points before the new text was in place"
    assert len(said) - turn >= 5, "and after it"


def test_half_a_text_of_a_killed_writer_hurts_nobody(shelf: Shelf) -> None:
    shelf.take()
    (shelf.directory / "chat.new").write_text('{"service": "chat", "gener')

    assert shelf.store.read("chat").generation == 1
    shelf.clock.now_s += LEASE_S
    assert shelf.take("d2") == 2


def test_two_processes_at_once_lose_no_change(shelf: Shelf) -> None:
    writers = [writer("count", shelf.directory, 20) for _ in range(2)]
    for process in writers:
        with process:
            assert process.wait(10) == 0

    assert shelf.store.read("chat").generation == 40


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "Invalid JSON: EOF while parsing a value at line 1 column 0"),
        (b'{"service": "chat", "gen', "Invalid JSON: EOF while parsing a string at line 1 column 24"),
        (b"\x00" * 40, "Invalid JSON: expected value at line 1 column 1"),
        (b'{"service": "\xff\xfe"}', "Invalid JSON: invalid unicode code point at line 1 column 14"),
        (b"[]", "Input should be an object"),
        (b"{}", "service: Field required"),
        (b'{"service": "chat", "generation": "many"}', "generation: Input should be a valid integer"),
        (b'{"service": "chat", "holder": {"owner": "ann"}}', "holder.deploy: Field required"),
        (b'{"service": "chat", "colour": "blue"}', "colour: Extra inputs are not permitted"),
        (b'{"service": "chat", "version": 2, "colour": "blue"}', "it was written by a newer sparkops (schema 2)"),
    ],
)
def test_a_journal_that_cannot_be_understood_needs_a_person_and_is_left_as_it_is(
    shelf: Shelf, text: bytes, why: str
) -> None:
    shelf.directory.mkdir()
    file = shelf.directory / "chat.json"
    file.write_bytes(text)

    for act in (
        lambda: shelf.store.read("chat"),
        shelf.take,
        lambda: shelf.store.guarded("chat", 0, lambda: pytest.fail("nothing may be done")),
    ):
        with pytest.raises(JournalUnreadable) as caught:
            act()
        assert str(caught.value).startswith(f"the journal {file} cannot be read: {why}")
        assert caught.value.exit_code == 7
        assert f"cat {file}" in caught.value.next_step

    assert file.read_bytes() == text


@pytest.mark.parametrize("name", ["", ".", "..", "../chat", "a/b", "/etc/passwd", "Chat", "-x", "a b", "a\n", "x" * 64])
def test_a_name_that_could_leave_the_directory_is_refused(shelf: Shelf, name: str) -> None:
    for act in (
        lambda: shelf.store.read(name),
        lambda: shelf.store.change(name, lambda journal, _: journal),
        lambda: shelf.store.guarded(name, 0, lambda: None),
        lambda: shelf.store.remember(name, {"event": "x"}),
        lambda: list(shelf.store.history(name)),
    ):
        with pytest.raises(SparkopsError, match="is not the name of a service"):
            act()

    assert list(shelf.directory.parent.iterdir()) == []


def test_what_is_remembered_comes_back_in_order_with_its_time(shelf: Shelf) -> None:
    for event in ("deployed", "rolled back"):
        shelf.store.remember("chat", {"event": event, "release": "q-1"})

    events = list(shelf.store.history("chat"))

    assert [event["event"] for event in events] == ["deployed", "rolled back"]
    assert all(str(event["at"]).endswith("Z") for event in events)


def test_a_torn_line_of_the_history_is_left_out(shelf: Shelf) -> None:
    shelf.store.remember("chat", {"event": "deployed"})
    with (shelf.directory / "chat.history").open("ab") as history:
        history.write(b'{"at": "2026-1\x00\xff\n')
    shelf.store.remember("chat", {"event": "reverted"})

    assert [event["event"] for event in shelf.store.history("chat")] == ["deployed", "reverted"]


def test_the_holder_acts_and_what_it_did_comes_back(shelf: Shelf) -> None:
    assert shelf.store.guarded("chat", shelf.take(), lambda: "done") == "done"


def test_who_was_taken_over_does_not_act(shelf: Shelf) -> None:
    stale = shelf.take("d1")
    shelf.clock.now_s += LEASE_S
    shelf.take("d2")

    with pytest.raises(Busy, match="another deploy has taken over chat"):
        shelf.store.guarded("chat", stale, lambda: pytest.fail("it was taken over"))


def test_who_gave_the_lock_back_does_not_act(shelf: Shelf) -> None:
    generation = shelf.take()
    shelf.store.change("chat", lambda j, _: rules.release(j, generation))

    with pytest.raises(Busy, match="the lock of chat was given back"):
        shelf.store.guarded("chat", generation, lambda: pytest.fail("it was given back"))


def test_who_held_a_journal_that_was_moved_away_does_not_act(shelf: Shelf) -> None:
    generation = max(shelf.take("d1") for _ in range(3))
    (shelf.directory / "chat.json").unlink()
    assert shelf.take("d2") < generation

    with pytest.raises(Busy):
        shelf.store.guarded("chat", generation, lambda: pytest.fail("the journal is another"))


def test_nobody_takes_the_lock_over_while_the_holder_acts(shelf: Shelf) -> None:
    generation, acting, outcome = shelf.take("d1"), threading.Event(), []

    def intrude() -> None:
        acting.wait(5)
        try:
            outcome.append(f"taken with generation {shelf.take('d2')}")
        except Busy as error:
            outcome.append(str(error))

    intruder = threading.Thread(target=intrude)
    intruder.start()

    def act() -> None:
        acting.set()
        time.sleep(0.05)
        assert outcome == [], "the intruder waits"
        shelf.clock.now_s += 5 * LEASE_S  # as docker stop of an engine with a long grace period

    shelf.store.guarded("chat", generation, act)
    intruder.join(5)

    assert outcome == ["chat: locked by d1@desk for 450 s; lease ends in 90 s"]


def test_an_act_that_fails_is_a_sign_of_life_too(shelf: Shelf) -> None:
    generation = shelf.take()

    def act() -> None:
        shelf.clock.now_s += LEASE_S - 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        shelf.store.guarded("chat", generation, act)

    assert lease_left(shelf.store.read("chat"), shelf.clock()) == LEASE_S


def test_locks_of_two_services_know_nothing_of_each_other(shelf: Shelf) -> None:
    shelf.take("d1")

    other = shelf.store.change("embed", lambda j, c: rules.acquire(j, "bob@lap", "d2", c))

    assert (other.generation, other.service) == (1, "embed")


def test_a_full_disk_leaves_the_journal_as_it_was(shelf: Shelf) -> None:
    shelf.take()
    before = (shelf.directory / "chat.json").read_bytes()
    (shelf.directory / "chat.new").symlink_to("/dev/full")

    with pytest.raises(OSError, match="No space left on device"):
        shelf.store.change("chat", lambda j, _: j.model_copy(update={"hold": "x"}))

    assert (shelf.directory / "chat.json").read_bytes() == before


def test_the_clock_is_this_machine_s_and_never_stands_still() -> None:
    first, second = read_clock(), read_clock()

    assert first.boot == second.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert 0 < first.now_s < second.now_s


def test_a_journal_is_text_that_a_person_can_read(shelf: Shelf) -> None:
    shelf.take()

    text = (shelf.directory / "chat.json").read_text()

    expected = {
        "owner": "d1@desk",
        "deploy": "d1",
        "renewed_s": 1000.0,
        "boot": "boot-1",
        "loads": False,
        "run": "",
        "since_s": 1000.0,
    }
    assert json.loads(text)["holder"] == expected
    assert len(text.splitlines()) > 5


def test_the_newest_starts_of_each_service_are_remembered(shelf: Shelf) -> None:
    for number in range(STARTS + 2):
        shelf.store.learn("chat", {"number": number})
    shelf.store.learn("other", {"number": 0})

    assert [each["number"] for each in shelf.store.starts("chat")] == list(range(2, STARTS + 2))
    assert shelf.store.services() == [], "a start is no journal"


def test_a_torn_start_is_left_out(shelf: Shelf) -> None:
    shelf.store.learn("chat", {"number": 1})
    with (shelf.directory / "chat.starts").open("a") as file:
        file.write('{"number": 2')

    assert list(shelf.store.starts("chat")) == [{"number": 1}]


def test_saved_evidence_is_for_its_owner_alone(shelf: Shelf) -> None:
    kept = shelf.store.keep("chat", "q-1", {"log.txt": "x"})

    assert [stat.S_IMODE(each.stat().st_mode) for each in (kept, kept / "log.txt")] == [0o700, 0o600]


@pytest.mark.parametrize(
    ("service", "release", "file"),
    [("..", "q-1", "log.txt"), ("chat", "../q", "log.txt"), ("chat", "q-1", "../log.txt"), ("chat", "q-1", "a/b.txt")],
)
def test_a_failure_is_kept_inside_the_directory(shelf: Shelf, service: str, release: str, file: str) -> None:
    with pytest.raises(SparkopsError, match=r"expected names|not the name"):
        shelf.store.keep(service, release, {file: "x"})

    assert not shelf.directory.exists()
