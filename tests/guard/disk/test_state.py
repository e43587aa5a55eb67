"""A guard's files: real directories, a real full disk."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.errors import SparkopsError
from sparkops.guard.disk import durable, evidence
from sparkops.guard.disk.durable import Unreadable
from sparkops.guard.disk.state import Membership, Peer, State
from sparkops.guard.environment import read_clock
from sparkops.guard.follow.engines import secrets
from sparkops.names import Slot
from sparkops.swap import wire
from sparkops.swap.follower import Record
from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.model import Deployment, Mode, RankSpec, Replica
from tests.guard.lead.test_gateway_front import released
from tests.guard.small_disk import fill, mounted

RANK = RankSpec("spark-1", "chat-q-1-blue", 61.5, '{"image": "sha256:1"}')
DEPLOYMENT = Deployment("q-1", Slot.BLUE, (Replica((RANK, RankSpec("spark-2", "chat-q-1-blue"))),))
JOURNAL = Journal("chat", "spark-1", peers=("spark-2",)).begun("deploy 1", Mode.FIRST, DEPLOYMENT, automatic=True)
STARTS = {"started": (("chat-q-1-blue", "3.1"),), "earlier": (("chat-q-1-blue", "1763.5"),)}
RECORD = Record(3, JOURNAL, RANK, False, **STARTS, down=frozenset({"chat-q-0-green"}), boot="boot-1", restarts=2)


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state" / "v2")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", kib=6144) as disk:
        yield disk


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_empty_node_knows_nothing_and_reading_creates_nothing(state: State) -> None:
    known = state.journal("chat"), state.record("chat"), state.events("chat"), state.starts("chat")
    assert known == (None, Record(), [], [])
    assert (state.secret("chat", "key"), state.by_hand("chat"), state.membership()) == (None, frozenset(), None)
    assert state.services() == []
    assert not state.directory.exists()


def test_journal_and_record_return_as_they_were_written(state: State) -> None:
    state.write_journal(JOURNAL)
    state.write_record("chat", RECORD)
    state.write_record("embed", Record())

    restarted = State(state.directory)

    assert (restarted.journal("chat"), restarted.record("chat")) == (JOURNAL, RECORD)
    assert (restarted.journal("embed"), restarted.record("embed")) == (None, Record())
    assert restarted.services() == ["chat", "embed"]


def test_services_are_those_with_a_journal_or_a_record(state: State) -> None:
    state.write_journal(JOURNAL)
    state.add_event("other", {"event": "deployed"})
    (state.directory / "services" / "Notes").mkdir()
    (state.directory / "services" / "Notes" / "journal").touch()

    assert state.services() == ["chat"]


def test_an_unreadable_service_raises_for_itself_only(state: State) -> None:
    state.write_journal(JOURNAL)
    state.write_journal(replace(JOURNAL, service="embed"))
    state.write_record("chat", RECORD)
    journal = state.directory / "services" / "chat" / "journal"
    journal.write_bytes(bytes(2**21))

    acts: list[Callable[[], object]] = [lambda: state.journal("chat"), lambda: state.write_journal(JOURNAL)]
    for act in acts:
        with pytest.raises(Unreadable, match=f"^{journal}: unreadable: both copies are damaged$"):
            act()

    assert (state.journal("embed"), state.record("chat")) == (replace(JOURNAL, service="embed"), RECORD)
    assert state.services() == ["chat", "embed"]
    assert journal.read_bytes() == bytes(2**21)


@pytest.mark.parametrize("kind", ["journal", "record"])
def test_what_a_newer_version_wrote_is_refused_with_the_next_step(state: State, kind: str) -> None:
    state.write_journal(JOURNAL)
    state.write_record("chat", RECORD)
    file = state.directory / "services" / "chat" / kind
    text = state._durable(file).read() or b""
    newer = json.loads(text) | {"schema": SCHEMA + 1}
    state._durable(file).write(json.dumps(newer).encode())

    with pytest.raises(Unreadable, match=f"{kind}: unreadable: .*has format 3, expected 2") as caught:
        state.journal("chat") if kind == "journal" else state.record("chat")

    assert caught.value.next_step.startswith("Update sparkops on this machine")


@pytest.mark.parametrize("text", ["", "{", "[]", '["a", 1]', '{"leader": "spark-1"}'])
def test_small_files_that_are_damaged_are_unreadable(state: State, text: str) -> None:
    state.note_by_hand("chat", frozenset({"a"}))
    state.write_membership(Membership("spark-1", b"k"))
    for file in ("services/chat/by_hand.json", "membership.json"):
        (state.directory / file).write_text(text)

    with pytest.raises(Unreadable, match=r"membership\.json: unreadable: Membership: "):
        state.membership()
    if text != "[]":
        with pytest.raises(Unreadable, match=r"by_hand\.json: unreadable: "):
            state.by_hand("chat")


@pytest.mark.parametrize("name", ["", ".", "..", "../chat", "a/b", "/etc", "Chat", "-x", "a b", "a\n", "x" * 64, "a\0"])
def test_a_name_that_could_leave_the_directory_is_refused(state: State, name: str) -> None:
    acts: list[Callable[[], object]] = [
        lambda: state.journal(name),
        lambda: state.write_journal(replace(JOURNAL, service=name)),
        lambda: state.record(name),
        lambda: state.write_record(name, RECORD),
        lambda: state.add_event(name, {}),
        lambda: state.events(name),
        lambda: state.keep(name, "q-1", {"log.txt": "x"}),
        lambda: state.learn(name, {}),
        lambda: state.secret(name, "key"),
        lambda: state.put_secret(name, "key", b""),
        lambda: state.forget_secrets(name, set(), 0.0),
        lambda: state.note_by_hand(name, frozenset()),
        lambda: state.by_hand(name),
    ]
    for act in acts:
        with pytest.raises(SparkopsError, match="expected the name of a service"):
            act()

    for secret in ("../key", "a/b"):
        with pytest.raises(SparkopsError, match="expected the name of a secret"):
            state.put_secret("chat", secret, b"")

    assert not state.directory.exists()


def test_events_are_numbered_from_one_and_return_after_a_number(state: State) -> None:
    numbers = [state.add_event("chat", {"event": event, "n": 99}) for event in ("deployed", "rolled back", "held")]
    assert State(state.directory).add_event("embed", {"event": "deployed"}) == 1
    assert State(state.directory).add_event("chat", {"event": "unheld"}) == 4

    assert numbers == [1, 2, 3]
    assert [(event["n"], event["event"]) for event in state.events("chat", since=2)] == [(3, "held"), (4, "unheld")]
    assert all(str(event["at"]).endswith("Z") for event in state.events("chat"))
    assert mode(state.directory / "services" / "chat" / "events.jsonl") == 0o600


@pytest.mark.parametrize("torn", [b'{"event": "lost", "n": 2', b"\0\0\0\0", b'{"n": "2"}\n', b"[1]\n", b"\xff\xfe\n"])
def test_a_torn_event_is_left_out_and_spoils_no_other(state: State, torn: bytes) -> None:
    state.add_event("chat", {"event": "deployed"})
    with (state.directory / "services" / "chat" / "events.jsonl").open("ab") as file:
        file.write(torn)

    assert state.add_event("chat", {"event": "reverted"}) == 2

    assert [(event["n"], event["event"]) for event in state.events("chat")] == [(1, "deployed"), (2, "reverted")]


def test_threads_get_different_numbers(state: State) -> None:
    numbers: list[int] = []
    threads = [
        threading.Thread(target=lambda: numbers.extend(state.add_event("chat", {"event": "x"}) for _ in range(5)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(numbers) == list(range(1, 21))
    assert [event["n"] for event in state.events("chat")] == list(range(1, 21))


def test_old_events_give_way_and_numbers_continue(state: State) -> None:
    long = "x" * (durable.EVENT_BYTES // 3)

    numbers = [state.add_event("chat", {"event": long}) for _ in range(11)]

    assert numbers == list(range(1, 12))
    kept = [event["n"] for event in state.events("chat")]
    assert kept == list(range(kept[0], 12))
    assert 4 <= len(kept) <= 8, "the newest of two files"


def test_an_event_that_does_not_fit_leaves_no_part(disk: Path) -> None:
    state = State(disk)
    state.add_event("chat", {"event": "deployed"})
    fill(disk)

    with pytest.raises(OSError, match="No space left on device"):
        state.add_event("chat", {"event": "x" * 8000})

    (disk / "filling").unlink()
    assert state.add_event("chat", {"event": "reverted"}) == 2
    assert [event["event"] for event in state.events("chat")] == ["deployed", "reverted"]


def test_a_full_disk_stops_neither_journal_nor_record(disk: Path) -> None:
    state = State(disk)
    state.write_journal(JOURNAL)
    state.write_record("chat", Record())
    fill(disk)

    newest = JOURNAL
    for _ in range(3):
        newest = newest.changed(trouble="x" * 500_000)
        state.write_journal(newest)
        state.write_record("chat", replace(RECORD, copy=newest))

    assert State(disk).journal("chat") == newest
    assert State(disk).record("chat") == replace(RECORD, copy=newest)


def test_evidence_that_does_not_fit_is_logged_and_raises_nothing(disk: Path) -> None:
    lines: list[str] = []
    state = State(disk, log=lines.append)
    state.add_event("chat", {"event": "deployed"})
    fill(disk)

    assert state.keep("chat", "q-1", {"log.txt": "x" * 8000}) is None
    assert len(lines) == 1
    assert lines[0].startswith("chat: evidence of q-1 not saved: [Errno 28] No space left on device")
    assert list(disk.glob("evidence/chat/*")) == []


def test_saved_evidence_is_for_its_owner_only(state: State) -> None:
    kept = state.keep("chat", "q-1", {"log.txt": "x", "inspect.json": "{}"})

    assert kept is not None
    assert {file.name: file.read_text() for file in kept.iterdir()} == {"log.txt": "x", "inspect.json": "{}"}
    assert [mode(path) for path in (kept, kept / "log.txt")] == [0o700, 0o600]
    assert kept.name.endswith("Z-q-1")


def saved(state: State, service: str, number: int, size: int) -> Path:
    """Evidence of an earlier time."""
    directory = state.directory / "evidence" / service / f"20260101T0000{number:02}Z-q-{number}"
    directory.mkdir(parents=True)
    with (directory / "log.txt").open("wb") as file:
        os.truncate(file.fileno(), size)
    return directory


def test_the_oldest_evidence_of_all_services_gives_way_to_the_quota_with_an_event(state: State) -> None:
    part = evidence.QUOTA // 4
    first, second = saved(state, "embed", 1, part), saved(state, "chat", 2, part)
    third = saved(state, "embed", 3, 2 * part - 10)

    kept = state.keep("chat", "q-9", {"log.txt": "x" * 11})

    assert kept is not None
    assert [path.exists() for path in (first, second, third, kept)] == [False, True, True, True]
    (event,) = state.events("embed")
    assert (event["kind"], event["text"]) == ("note", f"evidence dropped: {first}: newer evidence needs its space")
    assert state.events("chat") == []


def test_evidence_that_fits_drops_nothing(state: State) -> None:
    old = saved(state, "embed", 1, evidence.QUOTA - 10)

    assert state.keep("chat", "q-9", {"log.txt": "x" * 10})

    assert old.exists()


def test_the_newest_failures_of_a_service_stay(state: State) -> None:
    old = [saved(state, "chat", number, 10) for number in range(evidence.FAILURES)]
    other = saved(state, "embed", 0, 10)

    kept = state.keep("chat", "q-9", {"log.txt": "x"})

    assert sorted((state.directory / "evidence" / "chat").iterdir()) == [*old[1:], kept]
    assert other.exists()
    assert [event["text"].split(": ")[1] for event in state.events("chat")] == [str(old[0])]


def test_evidence_larger_than_the_quota_is_dropped_and_takes_no_other_with_it(state: State) -> None:
    lines: list[str] = []
    state = State(state.directory, log=lines.append)
    old = saved(state, "chat", 1, 10)

    assert state.keep("chat", "q-9", {"log.txt": "x" * (evidence.QUOTA + 1)}) is None

    assert old.exists()
    size = f"{evidence.QUOTA + 1} bytes, expected up to {evidence.QUOTA}"
    assert lines == [f"chat: evidence of q-9 not saved: evidence of q-9: {size}"]


@pytest.mark.parametrize(("release", "file"), [("../q", "log.txt"), ("q-1", "../log.txt"), ("q-1", "a/b.txt")])
def test_evidence_stays_inside_its_directory(state: State, release: str, file: str) -> None:
    with pytest.raises(SparkopsError, match=r"^evidence: .* expected the (name|id) of"):
        state.keep("chat", release, {file: "x"})

    assert not state.directory.exists()


def test_the_newest_starts_of_a_service_last(state: State) -> None:
    for number in range(durable.STARTS + 2):
        state.learn("chat", {"number": number})
    state.learn("embed", {"number": 0})
    with (state.directory / "services" / "chat" / "starts.jsonl").open("a") as file:
        file.write('{"number": 2')

    assert [start["number"] for start in state.starts("chat")] == list(range(2, durable.STARTS + 2))
    assert state.services() == [], "a start is no journal"


def test_a_secret_is_for_its_owner_only_and_is_replaced(state: State) -> None:
    for value in (b"old", b"\x00new\xff"):
        state.put_secret("chat", "ray-q-1-blue", value)

    assert state.secret("chat", "ray-q-1-blue") == b"\x00new\xff"
    assert state.secret("embed", "ray-q-1-blue") is None
    (file,) = (state.directory / "services" / "chat" / "secrets").iterdir()
    assert [mode(path) for path in (file, file.parent, state.directory)] == [0o600, 0o700, 0o700]


def test_secrets_that_no_journal_needs_are_removed_once_they_are_old(state: State) -> None:
    for name in ("ray-q-1-blue", "ray-q-2-green", "ray-q-3-blue"):
        state.put_secret("chat", name, b"token")
    for name in ("ray-q-1-blue", "ray-q-2-green"):
        os.utime(state.directory / "services" / "chat" / "secrets" / name, (0, 0))
    state.put_secret("embed", "ray-q-1-blue", b"token")

    state.forget_secrets("chat", {"ray-q-2-green"}, 60.0)
    state.forget_secrets("none", set(), 60.0)

    kept = [state.secret("chat", f"ray-q-{name}") for name in ("1-blue", "2-green", "3-blue")]
    assert (kept, state.secret("embed", "ray-q-1-blue")) == ([None, b"token", b"token"], b"token")


def test_secrets_are_those_of_every_release_that_a_journal_may_return_to() -> None:
    spec = {**json.loads(next(released("127.0.0.1").heads).spec), "token": "d" * 64}
    replica = Replica((RankSpec("n1", "q-r0", spec=json.dumps(spec)),))
    releases = [Deployment(f"q-{number}", Slot.BLUE, (replica,)) for number in range(3)]
    swapping = replace(JOURNAL, active=releases[0], previous=releases[1], swap=None)
    swapping = swapping.begun("2", Mode.ACROSS, releases[2], automatic=True)

    assert secrets(swapping) == {"answers-2", *(f"ray-q-{number}-blue-{'d' * 16}" for number in range(3))}
    assert secrets(replace(swapping, previous=None)) == secrets(swapping), "the release before the swap"


def test_containers_stopped_by_hand_are_remembered(state: State) -> None:
    state.note_by_hand("chat", frozenset({"a", "b"}))
    assert State(state.directory).by_hand("chat") == {"a", "b"}

    state.note_by_hand("chat", frozenset())
    assert State(state.directory).by_hand("chat") == frozenset()


def test_the_membership_returns_with_its_key_and_shows_it_to_nobody(state: State) -> None:
    key = bytes(range(224, 256))
    membership = Membership("spark-1", key, {"spark-2": Peer("fd00::2", 10844)})

    state.write_membership(membership)

    assert State(state.directory).membership() == membership
    assert mode(state.directory / "membership.json") == 0o600
    assert repr(key) not in repr(membership)
    newer = json.loads((state.directory / "membership.json").read_text()) | {"schema": SCHEMA + 1}
    (state.directory / "membership.json").write_text(json.dumps(newer))
    with pytest.raises(Unreadable, match="has format 3, expected 2"):
        state.membership()


def test_the_clock_is_this_node_s_and_never_stands_still(state: State) -> None:
    first, second = state.clock(), read_clock()

    assert first.boot == second.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert 0 < first.now_s < second.now_s


def test_a_journal_of_many_long_specs_fits(state: State) -> None:
    ranks = tuple(Replica((RankSpec(f"spark-{number}", "c", 1.0, "s" * 16_000),)) for number in range(8))
    journal = replace(JOURNAL, active=replace(DEPLOYMENT, replicas=ranks), previous=replace(DEPLOYMENT, replicas=ranks))
    journal = journal.begun("2", Mode.ACROSS, replace(DEPLOYMENT, replicas=ranks, slot=Slot.GREEN), automatic=True)

    state.write_journal(journal)

    assert state.journal("chat") == wire.load(Journal, wire.dump(Journal, journal)) == journal
