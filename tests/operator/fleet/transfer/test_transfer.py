"""Both ends of a transfer as real programs: directly, through this machine, against strangers and broken wires."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkops.command import Command
from sparkops.errors import Interrupted, NodeError
from sparkops.operator.fleet.transfer import commands, transfer
from sparkops.operator.fleet.transfer.commands import EndProgram, Into, Key, Listening, SentFiles
from sparkops.operator.fleet.transfer.rendezvous import Ends
from tests.operator.build.weights.places import member, processes_about

HERE = ("127.0.0.1",)
NOWHERE = ("192.0.2.1",)  # no address of this machine: kept for documentation
SIZE = 9 * 1024 * 1024 + 5  # three pieces, and the last one is short
CHANGED_NS = 1_600_000_000_123_456_789


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """A file of several pieces in a directory `a` of the source."""
    written = secrets.token_bytes(SIZE)
    (tmp_path / "a/deep").mkdir(parents=True)
    (tmp_path / "a/deep/w").write_bytes(written)
    return written


def files(root: Path, offset: int = 0) -> SentFiles:
    return SentFiles(str(root / "a"), (("deep/w", SIZE, offset),))


def into(root: Path, offset: int = 0, identity: str = "it") -> Into:
    return Into(str(root / "b.partial"), identity, (("deep/w", SIZE, offset, CHANGED_NS),))


def ends(root: Path, give: SentFiles | EndProgram, take: Into | EndProgram, addresses: tuple[str, ...]) -> Ends:
    return Ends(member("n1", root), give, member("n2", root), take, addresses)


def send(these: Ends) -> tuple[list[int], int]:
    """What was told: bytes that had arrived, and how often it went the other way."""
    arrived: list[int] = []
    detours: list[None] = []
    transfer.send(these, arrived.append, lambda: detours.append(None))
    return arrived, len(detours)


@pytest.mark.parametrize(("addresses", "detours"), [(HERE, 0), ((), 1), (NOWHERE, 1), ((*NOWHERE, *HERE), 0)])
def test_files_arrive_whole_with_their_times(
    tmp_path: Path, content: bytes, addresses: tuple[str, ...], detours: int
) -> None:
    arrived, count = send(ends(tmp_path, files(tmp_path), into(tmp_path), addresses))
    received = tmp_path / "b.partial/deep/w"

    assert received.read_bytes() == content
    assert received.stat().st_mtime_ns == CHANGED_NS
    assert (arrived[-1], count) == (SIZE, detours)


@pytest.mark.parametrize("addresses", [HERE, ()], ids=["directly", "through here"])
def test_a_program_feeds_a_program(tmp_path: Path, content: bytes, addresses: tuple[str, ...]) -> None:
    give = EndProgram(("cat", str(tmp_path / "a/deep/w")))
    take = EndProgram(("sh", "-c", 'cat > "$1"', "sh", str(tmp_path / "copy")))
    arrived, _ = send(ends(tmp_path, give, take, addresses))

    assert (tmp_path / "copy").read_bytes() == content
    assert arrived[-1] == SIZE


def test_only_what_is_missing_is_sent(tmp_path: Path, content: bytes) -> None:
    offset = 4 * 1024 * 1024 + 1
    partial = tmp_path / "b.partial/deep/w"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(content[:offset] + b"bytes after the last piece that was verified")
    (tmp_path / "b.partial/.sparkops-partial").write_text("it")
    arrived, _ = send(ends(tmp_path, files(tmp_path, offset), into(tmp_path, offset), HERE))

    assert partial.read_bytes() == content
    assert arrived[-1] == SIZE - offset


def test_what_was_begun_with_something_else_is_thrown_away(tmp_path: Path, content: bytes) -> None:
    other = tmp_path / "b.partial"
    other.mkdir()
    (other / "old").write_text("of another checkpoint")
    (other / ".sparkops-partial").write_text("another")
    send(ends(tmp_path, files(tmp_path), into(tmp_path), HERE))

    assert sorted(path.name for path in other.iterdir()) == [".sparkops-partial", "deep"]
    assert (other / "deep/w").read_bytes() == content


def test_a_file_that_is_linked_from_elsewhere_is_never_written_to(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b/w").write_bytes(b"served at this moment")
    (tmp_path / "b.partial/deep").mkdir(parents=True)
    os.link(tmp_path / "b/w", tmp_path / "b.partial/deep/w")
    (tmp_path / "b.partial/.sparkops-partial").write_text("it")

    with pytest.raises(NodeError, match="has changed since it was listed"):
        send(ends(tmp_path, files(tmp_path, 5), into(tmp_path, 5), HERE))
    send(ends(tmp_path, files(tmp_path), into(tmp_path), HERE))
    assert (tmp_path / "b/w").read_bytes() == b"served at this moment"
    assert (tmp_path / "b.partial/deep/w").read_bytes() == content


def test_what_the_target_keeps_is_linked_and_not_sent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b/own").write_text("own")
    (tmp_path / "b/link").symlink_to(tmp_path / "b/own")
    take = Into(
        str(tmp_path / "b.partial"), "it", into(tmp_path).files, beside=str(tmp_path / "b"), keep=("link", "own")
    )
    send(ends(tmp_path, files(tmp_path), take, HERE))

    assert (tmp_path / "b.partial/own").samefile(tmp_path / "b/own")
    assert (tmp_path / "b.partial/link").readlink() == tmp_path / "b/own"
    assert (tmp_path / "b.partial/deep/w").read_bytes() == content


SAYS_WHY = "echo why >&2; exit 3"


@pytest.mark.parametrize("addresses", [HERE, ()], ids=["directly", "through here"])
@pytest.mark.parametrize(
    ("give", "take", "why"),
    [
        (SentFiles("{root}/a", (("gone", 5, 0),)), None, "gone: No such file"),
        (SentFiles("{root}/a", (("deep/w", SIZE + 1, 0),)), None, "deep/w changed while it was sent"),
        (EndProgram(("sh", "-c", f"echo half; {SAYS_WHY}")), EndProgram(("cat",)), "ended with code 3: why"),
        (EndProgram(("no-such-program",)), EndProgram(("cat",)), "no-such-program cannot be started: No such file"),
        (None, EndProgram(("sh", "-c", SAYS_WHY)), "ended with code 3: why"),
    ],
    ids=["no file", "short file", "source", "no program", "target"],
)
def test_the_end_that_failed_says_why(
    tmp_path: Path,
    content: bytes,  # noqa: ARG001 - makes the file
    give: SentFiles | EndProgram | None,
    take: EndProgram | None,
    why: str,
    addresses: tuple[str, ...],
) -> None:
    if isinstance(give, SentFiles):
        give = SentFiles(give.directory.format(root=tmp_path), give.files)
        [(name, size, _)] = give.files
        receiving: Into | EndProgram = Into(str(tmp_path / "b.partial"), "it", ((name, size, 0, 1),))
    else:
        receiving = take or EndProgram(("cat",))

    with pytest.raises(NodeError, match=why):
        send(ends(tmp_path, give or EndProgram(("cat", str(tmp_path / "a/deep/w"))), receiving, addresses))


def test_a_program_that_did_not_get_all_sees_no_end_of_its_input(tmp_path: Path) -> None:
    """Otherwise half an image could be loaded, or half a file be taken for a whole one."""
    take = EndProgram(("sh", "-c", 'cat > "$1" && mv "$1" "$2"', "sh", str(tmp_path / "part"), str(tmp_path / "whole")))

    with pytest.raises(NodeError):
        send(ends(tmp_path, EndProgram(("sh", "-c", f"echo half; {SAYS_WHY}")), take, HERE))
    assert not (tmp_path / "whole").exists()


def test_two_runs_do_not_write_to_the_same_place(tmp_path: Path, content: bytes) -> None:  # noqa: ARG001
    (tmp_path / "b.partial").mkdir()
    with (tmp_path / "held").open("w") as log:
        script = (
            "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), 2); print(1, flush=True); sys.stdin.read()"
        )
        argv = ["python3", "-c", script, str(tmp_path / "b.partial")]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as holder:
            assert holder.stdout
            assert holder.stdin
            holder.stdout.readline()
            with pytest.raises(NodeError, match="another run is writing to"):
                send(ends(tmp_path, files(tmp_path), into(tmp_path), HERE))
            holder.stdin.close()


def test_ctrl_c_leaves_no_program_running(tmp_path: Path) -> None:
    cancel = threading.Event()
    source, target = member("n1", tmp_path, cancel), member("n2", tmp_path, cancel)
    give = EndProgram(("sh", "-c", f"while :; do head -c {SIZE} /dev/zero; sleep 0.2; done", str(tmp_path)))
    take = EndProgram(("sh", "-c", 'cat > "$1"', "sh", str(tmp_path / "copy")))

    def arrived(count: int) -> None:
        if count:
            cancel.set()

    with pytest.raises(Interrupted):
        transfer.send(Ends(source, give, target, take, HERE), arrived, lambda: None)
    assert list(processes_about(str(tmp_path))) == []


# --- on the wire


@contextmanager
def running(command: Command) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(command.argv, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin
        process.stdin.write(command.stdin)
        process.stdin.flush()
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def listening(take: Into, key: Key) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A receiving end, and its port."""
    with running(commands.receive(key, take, HERE)) as process:
        assert process.stdout
        message = commands.parse(process.stdout.readline().decode())
        assert isinstance(message, Listening)
        [(_, port)] = message.places
        yield process, port


def sent(give: SentFiles, key: Key, port: int) -> subprocess.CompletedProcess[bytes]:
    """A sending end, to its end. Its stdin stays open as long as it runs, as a node's does."""
    with running(commands.send(key, give, [("127.0.0.1", port)])) as process:
        code = process.wait(60)
        assert process.stderr
        return subprocess.CompletedProcess([], code, stderr=process.stderr.read())


def through(port: int, change: Callable[[bytes], bytes]) -> int:
    """The port of somebody on the wire who hands on what the sending end says, changed."""
    door = socket.create_server(("127.0.0.1", 0))

    def hand_on(a: socket.socket, b: socket.socket, alter: Callable[[bytes], bytes]) -> None:
        with a, b, suppress(OSError):  # one of them has hung up, as it should
            while piece := a.recv(1 << 20):
                b.sendall(alter(piece))
            b.shutdown(socket.SHUT_WR)

    def serve() -> None:
        caller, _ = door.accept()
        door.close()
        called = socket.create_connection(("127.0.0.1", port))
        threading.Thread(target=hand_on, args=(called.dup(), caller.dup(), bytes), daemon=True).start()
        hand_on(caller, called, change)

    threading.Thread(target=serve, daemon=True).start()
    return int(door.getsockname()[1])


def test_a_stranger_is_sent_away_and_the_right_one_is_still_let_in(tmp_path: Path, content: bytes) -> None:
    key = Key(secrets.token_bytes(32))
    with listening(into(tmp_path), key) as (process, port):
        stranger = sent(files(tmp_path), Key(secrets.token_bytes(32)), port)
        with socket.create_connection(("127.0.0.1", port)) as rude:
            rude.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
            assert sent(files(tmp_path), key, port).returncode == 0
        assert process.wait(60) == 0

    assert stranger.returncode == commands.UNREACHABLE
    assert (tmp_path / "b.partial/deep/w").read_bytes() == content


def test_silent_and_slow_callers_hold_up_no_other(tmp_path: Path, content: bytes) -> None:
    """More of them than are listened to at once, and one that sends a byte now and then.

    A sender that waits for one of them gives up: its handshake has the same deadline.
    """
    key, over = Key(secrets.token_bytes(32)), threading.Event()
    with listening(into(tmp_path), key) as (process, port), ExitStack() as silent:
        callers = [silent.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(20)]

        def trickle() -> None:
            with suppress(OSError):
                while not over.wait(0.2):
                    callers[-1].sendall(b"x")

        threading.Thread(target=trickle, daemon=True).start()
        ended = sent(files(tmp_path), key, port)
        over.set()
        assert process.wait(60) == 0

    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "b.partial/deep/w").read_bytes() == content


def test_a_handshake_has_one_deadline_however_slowly_its_bytes_come(tmp_path: Path, content: bytes) -> None:
    _ = content
    with (
        listening(into(tmp_path), Key(secrets.token_bytes(32))) as (process, port),
        socket.create_connection(("127.0.0.1", port), timeout=1) as slow,
    ):
        assert trickles(slow, 28) < 28, "the random number of a handshake has 32 bytes"
        assert process.poll() is None


def trickles(connection: socket.socket, most: int) -> int:
    """Send a byte every second until the other end closes the connection. Returns the number of bytes."""
    for number in range(most):
        try:
            connection.sendall(b"x")
            while connection.recv(100):
                pass
        except TimeoutError:
            continue
        except ConnectionError:
            pass
        return number
    return most


def test_nothing_is_sent_to_a_stranger(tmp_path: Path, content: bytes) -> None:  # noqa: ARG001
    received = bytearray()
    door = socket.create_server(("127.0.0.1", 0))

    def pretend() -> None:
        caller, _ = door.accept()
        with caller:
            caller.settimeout(5)
            caller.sendall(bytes(64))
            while piece := caller.recv(1 << 16):
                received.extend(piece)

    thread = threading.Thread(target=pretend, daemon=True)
    thread.start()
    ended = sent(files(tmp_path), Key(secrets.token_bytes(32)), door.getsockname()[1])
    thread.join(10)
    door.close()

    assert ended.returncode == commands.UNREACHABLE
    assert len(received) == 32  # its random number, and not one byte of the file


@dataclass
class FlipOneBit:
    """Changes one bit in the middle of what goes by."""

    at: int = SIZE // 2
    passed: int = 0

    def __call__(self, piece: bytes) -> bytes:
        here, self.passed = self.at - self.passed, self.passed + len(piece)
        if not 0 <= here < len(piece):
            return piece
        return piece[:here] + bytes([piece[here] ^ 1]) + piece[here + 1 :]


def test_a_bit_that_is_changed_on_the_wire_is_never_written(tmp_path: Path, content: bytes) -> None:
    key = Key(secrets.token_bytes(32))
    with listening(into(tmp_path), key) as (process, port):
        sent(files(tmp_path), key, through(port, FlipOneBit()))
        assert process.wait(60) == commands.BROKEN
        assert process.stderr
        assert b"a piece changed in transit" in process.stderr.read()

    written = (tmp_path / "b.partial/deep/w").read_bytes()
    assert content.startswith(written)
    assert 0 < len(written) < SIZE


def test_the_key_stands_in_no_argument_and_is_never_printed() -> None:
    key = Key(secrets.token_bytes(32))
    for command in (
        commands.send(key, SentFiles("/x", ()), None),
        commands.receive(key, EndProgram(("cat",)), None),
    ):
        assert key.value.hex() not in str(command) + repr(command) + repr(key)
        assert json.loads(command.stdin.splitlines()[1])["token"] == key.value.hex()


def test_an_end_that_nobody_waits_for_ends_itself(tmp_path: Path) -> None:
    with listening(into(tmp_path), Key(secrets.token_bytes(32))) as (process, _):
        assert process.stdin
        process.stdin.close()
        assert process.wait(10) == commands.BROKEN


@pytest.mark.parametrize("addresses", [HERE, ()])
def test_a_planted_link_is_not_followed_when_a_copy_resumes(
    tmp_path: Path, content: bytes, addresses: tuple[str, ...]
) -> None:
    """A user of the target node replaces a part of a file by a link to a file that the program may write."""
    target = tmp_path / "theirs"
    target.write_bytes(b"x" * 100)
    link = tmp_path / "b.partial/deep/w"
    link.parent.mkdir(parents=True)
    (tmp_path / "b.partial/.sparkops-partial").write_text("it")
    link.symlink_to(target)

    with pytest.raises(NodeError, match=r"b\.partial/deep/w has changed since it was listed"):
        send(ends(tmp_path, files(tmp_path, 5), into(tmp_path, 5), addresses))
    assert target.read_bytes() == b"x" * 100
    assert len(content) == SIZE
