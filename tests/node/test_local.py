"""This machine as a node: real processes."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from sparkops.command import Command, Completed
from sparkops.errors import CommandFailed, ConnectionLost, Interrupted, NodeError, NotReady, SparkopsError
from sparkops.node.local import LocalNode
from sparkops.node.streams import KEEP
from tests.node.threads import no_thread_starts

NODE = LocalNode("here")
BIG = 20_000_000

FORGET = deque[str](maxlen=0).append


def sh(script: str, *argv: str, timeout_s: float = 60.0, stdin: bytes = b"") -> Command:
    return Command(("sh", "-c", script, "sh", *argv), timeout_s=timeout_s, stdin=stdin)


def ends(pid_file: Path) -> bool:
    """Whether the process ends within 30 s. One that nobody has waited for yet (Z) has ended."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        ran = subprocess.run(
            ["ps", "-o", "stat=", "-p", pid_file.read_text().strip()], capture_output=True, text=True, check=False
        )
        if not ran.stdout.strip() or ran.stdout.startswith("Z"):
            return True
        time.sleep(0.01)
    return False


def wait_for(file: Path) -> None:
    while not file.exists() or not file.read_text().endswith("\n"):
        time.sleep(0.01)


OCI = "OCI runtime exec failed: exec failed: unable to start container process: "
NOT_BEGUN = f"{OCI}waiting for init preliminary setup: read init-p: connection reset by peer: unknown"
NOT_THERE = f'{OCI}exec: "gateway": executable file not found in $PATH: unknown'
"""What `docker exec` of Docker 26.1 printed on stdout, with code 126."""
LATER_BEGUN = 'cat >>"$1"; echo >>"$1"; [ "$(wc -l <"$1")" -ge "$2" ] || { echo "$3"; exit 126; }'
"""Writes down what it is given and fails with words of Docker on stdout until it has done so as often as is said."""


@pytest.mark.parametrize(
    ("printed", "begins_at", "stream", "runs"),
    [
        (NOT_BEGUN, 3, (), 3),
        (NOT_BEGUN, 9, (), 3),
        (NOT_BEGUN, 2, (b" on",), 1),
        (NOT_THERE, 2, (), 1),
        ("read init-p: connection reset by peer", 2, (), 1),
    ],
)
def test_a_program_that_docker_could_not_begin_is_begun_again(
    tmp_path: Path, printed: str, begins_at: int, stream: tuple[bytes, ...], runs: int
) -> None:
    file = tmp_path / "given"
    command = sh(LATER_BEGUN, str(file), str(begins_at), printed, stdin=b"go")

    with nullcontext() if runs == begins_at else pytest.raises(CommandFailed, match="exited with code 126"):
        NODE.run(command, stdin=stream)
    assert file.read_text() == ("go" + b"".join(stream).decode() + "\n") * runs


def test_a_command_gives_its_code_and_both_outputs() -> None:
    command = sh("echo out; echo err >&2")

    assert NODE.run(command) == Completed("here", command, 0, "out\n", "err\n")


def test_arguments_reach_the_program_as_they_are() -> None:
    argv = ("a b", "$(id)", "it's", "", "ü\n")

    assert NODE.run(Command(("printf", "%s|", *argv))).stdout == "a b|$(id)|it's||ü\n|"


def test_another_code_than_0_is_an_error() -> None:
    with pytest.raises(CommandFailed, match=r"exited with code 3: no such thing$") as caught:
        NODE.run(sh("echo no such thing >&2; exit 3"))

    assert caught.value.completed.exit_code == 3


def test_a_program_killed_by_a_signal_has_failed() -> None:
    with pytest.raises(CommandFailed, match="exited with code -9"):
        NODE.run(sh("kill -KILL $$"))


def test_20_mb_on_both_outputs_at_once_do_not_block_each_other() -> None:
    script = f"yes 0123456789 | head -c {BIG} & yes abcdefghij | head -c {BIG} >&2; wait"

    completed = NODE.run(sh(script), on_line=FORGET)

    assert (len(completed.stdout), len(completed.stderr)) == (KEEP, KEEP)
    assert (completed.stdout[-10:], completed.stderr[-10:]) == ("\n012345678", "\nabcdefghi")


def test_a_program_that_prints_without_end_is_stopped_at_the_bound() -> None:
    with pytest.raises(NodeError, match=rf"`yes` printed more than {KEEP} characters; stopped$"):
        NODE.run(Command(("yes",), timeout_s=60.0))


def test_stdin_is_the_command_s_own_and_then_the_stream() -> None:
    assert NODE.run(sh("cat", stdin=b"first "), stdin=[b"second ", b"third"]).stdout == "first second third"


def test_20_mb_go_in_while_20_mb_come_out() -> None:
    completed = NODE.run(sh("tee /dev/stderr | wc -c"), stdin=(b"x" * 100_000 for _ in range(BIG // 100_000)))

    assert (completed.stdout.strip(), len(completed.stderr)) == (str(BIG), KEEP)


def test_a_program_may_end_without_reading_its_stdin() -> None:
    assert NODE.run(sh("echo enough"), stdin=(b"x" * 100_000 for _ in range(20))).stdout == "enough\n"


def test_an_error_of_the_stream_ends_the_program(tmp_path: Path) -> None:
    def cut_short() -> Iterator[bytes]:
        yield b"half"
        wait_for(tmp_path / "pid")
        raise SparkopsError("a.whl changed while it was sent")

    with pytest.raises(SparkopsError, match=r"^a\.whl changed while it was sent$"):
        NODE.run(sh('echo $$ > "$1"; exec sleep 60', str(tmp_path / "pid")), stdin=cut_short())

    assert ends(tmp_path / "pid")


def test_lines_come_while_the_program_runs() -> None:
    lines: list[str] = []
    noticed = threading.Event()

    def on_line(line: str) -> None:
        lines.append(line)
        noticed.set()

    def last_word() -> Iterator[bytes]:
        assert noticed.wait(30)
        yield b"go on\n"

    NODE.run(sh("echo first; read word; echo $word; printf 'no newline'"), stdin=last_word(), on_line=on_line)

    assert lines == ["first", "go on", "no newline"]


def test_a_deadline_ends_the_whole_process_group(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    for timeout_s in (0.1, 1.0, 10.0):  # the program must have started before its deadline
        with pytest.raises(ConnectionLost, match=rf"did not end within {timeout_s:g} s"):
            NODE.run(sh('sleep 600 & echo $! > "$1"; sleep 600', str(pid), timeout_s=timeout_s))
        if pid.exists() and pid.read_text().endswith("\n"):
            break

    assert ends(pid)


def test_the_deadline_holds_for_a_program_that_closes_its_outputs() -> None:
    with pytest.raises(ConnectionLost, match="did not end within"):
        NODE.run(sh("exec sleep 60 >/dev/null 2>&1", timeout_s=0.1))


def test_cancel_ends_the_whole_process_group(tmp_path: Path) -> None:
    node = LocalNode("here")

    def cancel_when_it_runs() -> None:
        wait_for(tmp_path / "pid")
        node.cancel.set()

    threading.Thread(target=cancel_when_it_runs).start()
    with pytest.raises(Interrupted, match=r"^here: interrupted$"):
        node.run(sh('sleep 60 & echo $! > "$1"; wait', str(tmp_path / "pid")))

    assert ends(tmp_path / "pid")


@pytest.mark.parametrize(
    ("program", "why", "step"),
    [
        ("no-such-program", "No such file or directory", ""),
        ("/etc/passwd", "Permission denied", ""),
    ],
)
def test_a_program_that_cannot_be_started_says_so(program: str, why: str, step: str) -> None:
    with pytest.raises(NotReady) as caught:
        NODE.run(Command((program,)))

    assert str(caught.value) == f"here: `{program}` cannot be started on this machine: {why}"
    assert (caught.value.next_step, caught.value.exit_code) == (step, 5)


def test_a_missing_docker_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(NotReady) as caught:
        NODE.run(Command(("docker", "ps")))

    assert caught.value.next_step == "Install Docker Engine."


def test_a_port_is_dialled_on_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, NODE.dial(server.getsockname()[1]) as stream:
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(b"hello")
            assert stream.recv(5) == b"hello"


def test_a_port_that_nobody_listens_on_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(ConnectionRefusedError):
        NODE.dial(port)


def test_a_pipe_is_both_stdin_and_stdout_of_a_program() -> None:
    with NODE.pipe(Command(("cat",))) as stream:
        stream.sendall(b"there and back")

        assert stream.recv(100) == b"there and back"


def test_a_pipe_ends_with_its_program() -> None:
    with NODE.pipe(Command(("true",))) as stream:
        assert stream.recv(100) == b""


def test_a_pipe_that_is_closed_ends_a_program_that_reads_no_stdin_and_its_children(tmp_path: Path) -> None:
    stream = NODE.pipe(sh('sleep 600 & echo $! > "$1"; wait', str(tmp_path / "pid")))
    wait_for(tmp_path / "pid")

    stream.close()

    assert ends(tmp_path / "pid")


def test_a_pipe_lasts_as_long_as_a_file_made_of_it() -> None:
    stream = NODE.pipe(Command(("cat",)))
    stream.sendall(b"first\nsecond\n")
    with stream.makefile("r") as lines:
        stream.close()

        assert [lines.readline(), lines.readline()] == ["first\n", "second\n"]


def test_a_program_for_whose_stdin_no_thread_starts_is_ended(tmp_path: Path) -> None:
    command = sh('echo $$ > "$1"; exec sleep 600', str(tmp_path / "pid"))

    with no_thread_starts(), pytest.raises(NotReady, match=r"cannot be run on this machine: can't start"):
        NODE.run(command)

    assert not (tmp_path / "pid").exists() or ends(tmp_path / "pid")
    assert NODE.run(Command(("echo", "later"))).stdout == "later\n"


def test_a_pipe_to_a_missing_program_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        NODE.pipe(Command(("no-such-program",)))
