"""Two slots on a disk: torn at every byte, killed, and on a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkops.errors import SparkopsError
from sparkops.guard.disk.durable import BLOCK, Durable, Unreadable, make_directory, replace_file
from tests.guard.small_disk import FULL, fill, in_image, mounted, punch

OLD, NEW = b"revision 41", b"revision 42, longer"
SECTOR = 512


@pytest.fixture
def small(tmp_path: Path) -> Durable:
    return Durable(tmp_path / "state" / "journal", 40)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", kib=64) as disk:
        yield disk


def test_a_file_that_was_never_written_is_none_and_reading_creates_nothing(small: Durable) -> None:
    assert small.read() is None
    assert not small.file.parent.exists()


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 40, bytes(range(40))])
def test_data_return_in_another_process_s_object(small: Durable, data: bytes) -> None:
    for _ in range(3):
        small.write(b"before")
        small.write(data)

        assert Durable(small.file, 40).read() == data


def test_the_file_never_changes_its_size_and_only_its_owner_reads_it(small: Durable) -> None:
    small.write(OLD)
    first = small.file.stat()
    for number in range(5):
        small.write(NEW[number:])

    now = small.file.stat()
    assert (now.st_size, now.st_ino, now.st_blocks) == (2 * BLOCK, first.st_ino, first.st_blocks)
    assert first.st_blocks * SECTOR >= 2 * BLOCK, "no hole: every block is there already"
    assert now.st_mode & 0o777 == 0o600
    assert [name.name for name in small.file.parent.iterdir()] == ["journal"]


def test_too_much_is_refused_and_changes_nothing(small: Durable) -> None:
    small.write(OLD)

    with pytest.raises(SparkopsError, match=r"journal: not written: 41 bytes, expected up to 40$"):
        small.write(bytes(41))

    assert small.read() == OLD


def torn(small: Durable) -> tuple[bytes, bytes]:
    """The file's bytes before and after a write."""
    small.write(b"revision 40")
    small.write(OLD)
    before = small.file.read_bytes()
    small.write(NEW)
    return before, small.file.read_bytes()


def test_a_write_torn_at_any_byte_leaves_the_old_data_or_the_new_and_the_next_write_succeeds(small: Durable) -> None:
    before, after = torn(small)
    changed = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    contents = []
    for cut in range(changed[0], changed[-1] + 2):
        for content in (after[:cut] + before[cut:], before[:cut] + after[cut:]):  # either end first
            small.file.write_bytes(content)
            restarted = Durable(small.file, 40)
            data = restarted.read()
            contents.append(data)
            assert data in (OLD, NEW)

            restarted.write(b"next")

            assert Durable(small.file, 40).read() == b"next"
    assert (contents.count(NEW) >= 2, contents.count(OLD) > 60) == (True, True), "torn in the header and in the data"


@given(lost=st.binary(min_size=1, max_size=60), at=st.integers(0, 100))
def test_garbage_in_one_slot_never_returns_as_data(
    tmp_path_factory: pytest.TempPathFactory, lost: bytes, at: int
) -> None:
    small = Durable(tmp_path_factory.mktemp("slot") / "journal", 40)
    _, after = torn(small)
    slot = 0 if after.index(NEW) < BLOCK else BLOCK
    small.file.write_bytes(after[: slot + at] + lost + after[slot + at + len(lost) :])

    assert small.read() in (OLD, NEW)


def test_two_damaged_slots_are_unreadable_and_stay_as_they_are(small: Durable) -> None:
    _, after = torn(small)
    damaged = after.replace(b"revision", b"Revision")
    small.file.write_bytes(damaged)

    for act in (small.read, lambda: small.write(b"x")):
        with pytest.raises(Unreadable, match=r"journal: unreadable: both copies are damaged$") as caught:
            act()

    assert caught.value.exit_code == 7
    assert f"mv {small.file} {small.file}.bad" in caught.value.next_step
    assert small.file.read_bytes() == damaged


@pytest.mark.parametrize("length", [0, 1, 20, BLOCK, BLOCK + 20])
def test_a_truncated_file_is_unreadable_unless_a_slot_is_whole(small: Durable, length: int) -> None:
    small.write(OLD)
    os.truncate(small.file, length)

    if length < BLOCK:
        with pytest.raises(Unreadable):
            small.read()
    else:
        assert small.read() == OLD


WRITER = """
import sys
from pathlib import Path
from sparkops.guard.disk.durable import Durable
durable = Durable(Path(sys.argv[1]), 9000)
for number in range(10**6):
    durable.write(str(number).encode() * 1000)
    print(number, flush=True)
"""


@pytest.mark.parametrize("acknowledged", [1, 2, 7])
def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path, acknowledged: int) -> None:
    file = tmp_path / "journal"
    argv = [sys.executable, "-c", WRITER, str(file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(acknowledged):
            process.stdout.readline()
        process.kill()
        numbers = [acknowledged - 1, *map(int, process.stdout.read().split())]

    data = Durable(file, 9000).read()

    assert data in [str(number).encode() * 1000 for number in (numbers[-1], numbers[-1] + 1)]


def test_a_full_disk_stops_no_write_after_the_first(disk: Path) -> None:
    durable = Durable(disk / "journal", 8000)
    durable.write(b"x")
    fill(disk)

    for number in range(4):
        data = bytes([number]) * 8000
        durable.write(data)
        assert Durable(disk / "journal", 8000).read() == data


def test_a_first_write_on_a_full_disk_fails_and_leaves_nothing(disk: Path) -> None:
    (disk / "filling").touch()
    other, names = Durable(disk / "other", 8000), {disk / "filling"}
    fill(disk)

    with pytest.raises(OSError, match=FULL):
        other.write(b"x")

    assert other.read() is None
    assert set(disk.iterdir()) == names


def test_a_write_that_never_reached_the_disk_is_not_read_and_leaves_the_older_slot_alone(disk: Path) -> None:
    """fsync fails here as on a broken disk: the kernel returns data that a power cut would take."""
    with in_image(disk) as directory:
        durable = Durable(directory / "journal", 3000)
        durable.write(b"marker" * 500)
        durable.write(OLD)
        os.sync()
        punch(disk / "image", b"marker" * 500)
        fill(disk)

        for _ in range(2):
            with pytest.raises(OSError, match=r"Input/output error|No space left"):
                durable.write(NEW)
            assert NEW in durable.file.read_bytes()
            assert durable.read() == OLD
            assert Durable(durable.file, 3000).read() == OLD, "as in the next process"
            assert OLD in durable.file.read_bytes()

        (disk / "filling").unlink()
        durable.write(NEW)
        assert (durable.read(), Durable(durable.file, 3000).read()) == (NEW, NEW)


def test_a_file_is_replaced_whole_or_not_at_all(disk: Path) -> None:
    file = disk / "by_hand.json"
    replace_file(file, b"old")
    fill(disk)

    with pytest.raises(OSError, match=FULL):
        replace_file(file, bytes(8000))

    assert file.read_bytes() == b"old"
    assert sorted(name.name for name in disk.iterdir()) == ["by_hand.json", "filling"]


def test_directories_are_for_their_owner_only(tmp_path: Path) -> None:
    make_directory(tmp_path / "a" / "b")

    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]
