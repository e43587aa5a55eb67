"""A node behind SSH: a real client and a real server, on this machine."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.command import Command
from sparkops.config.inventory import Fleet
from sparkops.errors import CommandFailed, ConnectionLost, Interrupted, NodeError, SparkopsError
from sparkops.node.http import session
from sparkops.node.node import Node
from sparkops.operator.fleet.connect import Connector
from sparkops.operator.fleet.ssh import SshNode
from sparkops.operator.fleet.transfer.rendezvous import held_open
from tests.http_server import answering
from tests.node.test_http import echo
from tests.operator.fleet.ssh_server import SshServer

FORGET = deque[str](maxlen=0).append


def sh(script: str, timeout_s: float = 60.0) -> Command:
    return Command(("sh", "-c", script), timeout_s=timeout_s)


def test_a_command_gives_its_code_and_both_outputs(node: Node) -> None:
    completed = node.run(sh("echo out; echo err >&2"))

    assert (completed.node, completed.exit_code, completed.stdout, completed.stderr) == ("n1", 0, "out\n", "err\n")


def test_the_line_that_runs_is_the_line_that_is_printed(node: Node, server: SshServer) -> None:
    command = Command(("printf", "%s|", "a b", "$(id)", "it's", "", "two\nlines", "ü"))

    assert node.run(command).stdout == "a b|$(id)|it's||two\nlines|ü|"
    assert server.lines[-1] == str(command)


def test_another_code_than_0_is_an_error(node: Node) -> None:
    with pytest.raises(CommandFailed, match="exited with code 3: no such thing"):
        node.run(sh("echo no such thing >&2; exit 3"))


def test_a_program_that_docker_could_not_begin_is_begun_again(node: Node, tmp_path: Path) -> None:
    message = (
        "OCI runtime exec failed: unable to start container process: read init-p: connection reset by peer: unknown"
    )

    node.run(sh(f"echo run >>{tmp_path}/runs; [ $(wc -l <{tmp_path}/runs) = 2 ] || {{ echo {message}; exit 126; }}"))


def test_5_mb_on_both_outputs_and_on_stdin_do_not_block_each_other(node: Node) -> None:
    chunks = (b"x" * 99_999 + b"\n" for _ in range(50))
    completed = node.run(sh("tee /dev/stderr | cat"), stdin=chunks, on_line=FORGET)

    assert (len(completed.stdout), len(completed.stderr)) == (4 * 1024 * 1024, 4 * 1024 * 1024)


def test_lines_come_without_the_process_number_that_is_announced(node: Node) -> None:
    lines: list[str] = []

    completed = node.run(sh("echo out; echo err >&2"), on_line=lines.append)

    assert (sorted(lines), completed.stderr) == (["err", "out"], "err\n")


def test_a_program_that_prints_without_end_is_stopped_at_the_bound(node: Node) -> None:
    with pytest.raises(NodeError, match=r"^n1: `yes` printed more than 4194304 characters; stopped$"):
        node.run(Command(("yes",), timeout_s=60.0))
    assert node.run(sh("echo on")).stdout == "on\n"


def test_the_error_that_stops_a_program_outlives_a_connection_that_ends_meanwhile(fleet: Fleet) -> None:
    node = Connector(fleet, patience_s=0).node("n1")
    assert isinstance(node, SshNode)

    def lose_the_connection(line: str) -> None:
        transport = node.client.get_transport()
        assert transport is not None
        transport.sock.close()
        raise SparkopsError(f"no space for {line}")

    with pytest.raises(SparkopsError, match=r"^no space for first$"):
        node.run(sh("echo first; sleep 60"), on_line=lose_the_connection)


def test_commands_run_beside_more_than_1024_open_files(node: Node) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(1100):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))

        assert node.run(sh("echo on")).stdout == "on\n"


def test_the_deadline_ends_a_program_that_never_stops_printing(node: Node) -> None:
    with pytest.raises(ConnectionLost, match="no result within 1 s"):
        node.run(sh("exec yes >&2", timeout_s=1.0), on_line=FORGET)


@pytest.mark.parametrize("printed", ["bash: warning: setlocale\n", "x" * 100_000, "-1\n"])
def test_a_login_shell_that_prints_first_is_not_taken_for_a_process_number(
    node: Node, server: SshServer, monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    monkeypatch.setattr(server, "greeting", printed.encode())
    lines: list[str] = []

    assert node.run(sh("echo out"), on_line=lines.append).stderr.startswith(printed)
    assert printed.rstrip("\n") in "\n".join(lines)


def test_an_error_of_the_stream_ends_the_program(node: Node) -> None:
    def cut_short() -> Iterator[bytes]:
        yield b"half"
        raise SparkopsError("a.whl changed while it was sent")

    with pytest.raises(SparkopsError, match=r"^a\.whl changed while it was sent$"):
        node.run(sh("cat >/dev/null; sleep 5"), stdin=cut_short())


def test_the_stdin_of_a_program_that_has_ended_is_left_alone(
    node: Node, server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(server, "linger_s", 0.3)

    node.run(sh("echo done"), stdin=held_open(over), on_line=FORGET)
    over.set()
    time.sleep(2 * server.linger_s)

    assert server.stdin_ended[-1] is False


def test_a_deadline_ends_the_command_and_says_that_its_outcome_is_unknown(node: Node) -> None:
    command = replace(sh("sleep 60", timeout_s=0.1), changes=True)

    with pytest.raises(ConnectionLost, match=r"^n1: `sh -c 'sleep 60'`: no result within 0\.1 s$") as caught:
        node.run(command)

    assert caught.value.next_step == "Outcome unknown; check `sparkops status`."


@pytest.mark.parametrize("greeting", [b"", b"bash: warning: setlocale\n"])
def test_cancel_interrupts_the_program_on_the_node(
    node: Node, server: SshServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, greeting: bytes
) -> None:
    monkeypatch.setattr(server, "greeting", greeting)
    trap = f"trap 'echo interrupted > {tmp_path}/said; exit' INT; touch {tmp_path}/runs; while :; do sleep 0.05; done"

    def cancel_when_it_runs() -> None:
        while not (tmp_path / "runs").exists():
            time.sleep(0.01)
        node.cancel.set()

    threading.Thread(target=cancel_when_it_runs).start()
    with pytest.raises(Interrupted, match=r"^n1: interrupted$"):
        node.run(sh(trap), on_line=lambda _: None)

    assert (tmp_path / "said").read_text() == "interrupted\n"


def test_a_lost_connection_is_told_as_such(node: Node, server: SshServer) -> None:
    threading.Timer(0.05, server.transports[-1].close).start()

    with pytest.raises(ConnectionLost, match=r"^n1: `sh -c 'sleep 60'`: "):
        node.run(sh("sleep 60"))
    with pytest.raises(ConnectionLost, match="the connection is closed"):
        node.run(sh("true"))


def test_a_port_of_the_node_is_dialled_through_the_connection(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, node.dial(listener.getsockname()[1]) as stream:
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"hello")

            assert stream.recv(5) == b"hello"


def test_a_unix_socket_of_the_node_is_dialled_through_the_connection(node: Node, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with node.dial(str(tmp_path / "socket")) as stream:
            accepted, _ = listener.accept()
            with accepted:
                accepted.sendall(b"hello")

                assert stream.recv(5) == b"hello"


def test_a_unix_socket_that_is_absent_refuses_and_the_connection_stays(node: Node, tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefusedError, match=r"n1: port .*/socket"):
        node.dial(str(tmp_path / "socket"))
    assert node.run(sh("echo on")).stdout == "on\n"


def test_a_port_that_nobody_listens_on_refuses(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    with pytest.raises(ConnectionRefusedError):
        node.dial(port)


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda node: node.run(sh("true")), ConnectionLost),
        (lambda node: node.pipe(sh("cat")), ConnectionError),
        (lambda node: node.dial(1), ConnectionError),
    ],
    ids=["run", "pipe", "dial"],
)
def test_a_connection_that_ends_while_a_channel_opens_is_an_error_that_is_foreseen(
    node: Node, server: SshServer, act: Callable[[Node], object], error: type[Exception]
) -> None:
    server.breaks = True

    with pytest.raises(error):
        act(node)


def test_a_pipe_is_both_stdin_and_stdout_of_a_program(node: Node) -> None:
    with node.pipe(Command(("cat",))) as stream:
        stream.sendall(b"there and back")

        assert stream.recv(100) == b"there and back"


def test_http_goes_through_it_as_well(node: Node) -> None:
    with answering(echo) as server, session(node, server.port) as asking:
        assert asking.get("http://node/health").text == "GET /health "
