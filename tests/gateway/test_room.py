"""The waiting room as a process of its own; the tests are the HAProxy before and behind it."""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sparkops.config import shipped

pytestmark = pytest.mark.local

PROGRAM = shipped.PACKAGE.parent / "templates/gateway/program"
STORE = runpy.run_path(str(PROGRAM / "store.py"))["Store"]
PROXY = b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + (12).to_bytes(2, "big") + bytes(12)
REQUEST = PROXY + b"POST /v1/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}"
BACKLOG = 1000  # a room that has got a signal connects 600 times in 30 s to what HAProxy's socket is
LARGE_MIB = 4
PLACES, PLACE = 40, 128 * 1024
ROOM = (str(LARGE_MIB), str(PLACES), str(PLACE))
RETRY_S = 30  # of a refusal without a known end
REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
WITHIN_S = 60.0
"""Far more than anything here takes: a slow machine is no failure."""


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def keep(state: Path, **kept: object) -> None:
    """Write what the gateway keeps, as it does."""
    STORE(state / "state").write(json.dumps({"active": {}, "slots": {}, "holds": {}, **kept}).encode())


class Room:
    """The process with its files. `inside` is where requests go that have waited."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.state, self.run, self.stack = directory / "state", directory / "run", stack
        for path in (self.state / "services", self.run):
            path.mkdir(parents=True)
        (self.state / "services/chat.cfg").write_text("frontend fe_chat\n")
        self.inside = self.listen("in.chat")
        self.admin = self.listen("admin.sock")
        environment = {**os.environ, "GATEWAY_STATE": str(self.state), "GATEWAY_RUN": str(self.run)}
        argv = [
            sys.executable,
            "-c",
            f"import sys; sys.path[0] = {str(PROGRAM)!r}; import room; room.serve(*{ROOM!r})",
        ]
        self.process = stack.enter_context(subprocess.Popen(argv, env=environment))
        stack.callback(self.process.kill)
        wait_for(self._listens)

    def listen(self, name: str) -> socket.socket:
        listening = self.stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(self.run / name))
        listening.listen(BACKLOG)
        listening.settimeout(WITHIN_S)
        return listening

    def _listens(self) -> bool:
        """Whether it replies, with every service: a socket's file is there a moment before anything listens."""
        try:
            return "chat" in self.figures_of_all()
        except (FileNotFoundError, ConnectionRefusedError):
            return False

    def connect(self, name: str) -> socket.socket:
        connection = self.stack.enter_context(socket.socket(socket.AF_UNIX))
        connection.settimeout(WITHIN_S)
        connection.connect(str(self.run / name))
        return connection

    def hold(
        self, left_s: float = 60.0, longest_s: float = 540.0, most: int = 5, mark: str = "1.2", back_s: float = 0.0
    ) -> None:
        """Hold requests. `back_s`: how far the clock has been set back since the prediction, in seconds."""
        until = time.time() + left_s + back_s
        given = {"mark": mark, "until": until, "left_s": left_s, "longest_s": longest_s, "most": most}
        keep(self.state, holds={"chat": given})

    def refuses(self, left_s: float) -> dict[str, Any]:
        """The error of one request more, which must name the time that remains of a hold of `left_s`: far over 30 s."""
        remaining_s, error = refusal(self.send())
        assert RETRY_S < remaining_s <= left_s
        return error

    def release(self) -> None:
        keep(self.state)

    def send(self) -> socket.socket:
        """A request as HAProxy sends it."""
        connection = self.connect("wait.chat")
        connection.sendall(REQUEST)
        return connection

    def waiting(self) -> int:
        return int(self.figures()["waiting_requests"])

    def figures(self) -> Any:
        return self.figures_of_all()["chat"]

    def figures_of_all(self) -> Any:
        connection = self.connect("room.sock")
        connection.sendall(b"\n")
        return json.loads(whole(connection))

    def passes(self) -> bool:
        """Whether a request that comes now reaches the other side, and its reply comes back."""
        return self.answered(self.send())

    def answered(self, request: socket.socket) -> bool:
        behind, _ = self.inside.accept()
        with behind:
            behind.settimeout(WITHIN_S)
            sent = b""
            while len(sent) < len(REQUEST) and (part := behind.recv(len(REQUEST) - len(sent))):
                sent += part
            behind.sendall(REPLY)
        return sent == REQUEST and whole(request) == REPLY


def whole(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def refusal(request: socket.socket) -> tuple[int, dict[str, Any]]:
    """The seconds of Retry-After, and the error."""
    head, _, body = whole(request).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 503 Service Unavailable"
    headers = dict(line.lower().split(": ") for line in lines[1:])
    assert int(headers["content-length"]) == len(body)
    return int(headers["retry-after"]), json.loads(body)["error"]


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    with ExitStack() as stack:
        yield Room(tmp_path, stack)


def test_a_request_waits_until_the_hold_ends_and_then_passes_whole(room: Room) -> None:
    room.hold()
    requests = [room.send() for _ in range(3)]
    wait_for(lambda: room.waiting() == 3)
    room.hold(mark="1.2+")  # another prediction lets nobody go
    time.sleep(0.3)
    assert room.waiting() == 3

    room.release()

    assert [room.answered(request) for request in requests] == [True] * 3
    assert room.waiting() == 0


def test_without_a_hold_a_request_passes_at_once(room: Room) -> None:
    assert room.passes()


def test_one_request_more_than_may_wait_gets_503_with_the_time_remaining(room: Room) -> None:
    room.hold(left_s=500, most=2)
    held = [room.send() for _ in range(2)]
    wait_for(lambda: room.waiting() == 2)

    error = room.refuses(500)

    assert (error["code"], error["type"]) == ("unavailable", "server_error")
    assert set(error) == {"message", "type", "param", "code"}
    assert room.figures()["refused_requests_total"] == 1
    room.release()
    assert [room.answered(request) for request in held] == [True] * 2


def test_a_client_leaves_as_many_places_free_as_it_takes(room: Room) -> None:
    room.hold(most=1000)
    held = [room.send() for _ in range(PLACES // 2)]
    wait_for(lambda: room.waiting() == PLACES // 2)

    room.refuses(60)
    other = room.connect("wait.chat")
    other.sendall(REQUEST[:16] + bytes((10, 0, 0, 7)) + REQUEST[20:])
    wait_for(lambda: room.waiting() == PLACES // 2 + 1)
    held[0].close()
    wait_for(lambda: room.waiting() == PLACES // 2)


def test_a_start_that_takes_longer_than_a_request_may_wait_gets_503_at_once(room: Room) -> None:
    room.hold(left_s=6000, longest_s=540)

    room.refuses(6000)
    room.hold(left_s=530, longest_s=540)  # later the same start is near enough
    room.send()
    wait_for(lambda: room.waiting() == 1)


def test_requests_wait_also_after_the_clock_was_set_back(room: Room) -> None:
    room.hold(left_s=60, longest_s=540, back_s=3600)

    room.send()
    wait_for(lambda: room.waiting() == 1)


def test_a_request_waits_no_longer_than_it_may(room: Room) -> None:
    room.hold(left_s=-5, longest_s=5)  # a late start, without an estimate of what remains
    request = room.send()
    wait_for(lambda: room.waiting() == 1)

    assert refusal(request)[0] == RETRY_S
    assert room.waiting() == 0


def test_a_client_that_leaves_waits_no_more_and_is_never_passed_on(room: Room) -> None:
    room.hold()
    leaving, staying = room.send(), room.send()
    wait_for(lambda: room.waiting() == 2)

    leaving.close()

    wait_for(lambda: room.waiting() == 1)
    room.release()
    assert room.answered(staying)
    room.inside.settimeout(0.3)
    with pytest.raises(TimeoutError):
        room.inside.accept()


def test_a_client_that_leaves_afterwards_ends_its_request_behind_the_room(room: Room) -> None:
    leaving = room.send()
    behind, _ = room.inside.accept()
    with behind:
        leaving.close()
        behind.settimeout(WITHIN_S)
        assert whole(behind) == REQUEST


def test_a_body_that_is_larger_than_any_buffer_passes_whole(room: Room) -> None:
    body, got = os.urandom(3_000_000), bytearray()
    room.hold()
    request = room.connect("wait.chat")
    sending = threading.Thread(target=request.sendall, args=(PROXY + body,))
    sending.start()
    wait_for(lambda: room.waiting() == 1)
    room.release()
    behind, _ = room.inside.accept()
    with behind:
        behind.settimeout(WITHIN_S)
        while len(got) < len(PROXY + body):
            got += behind.recv(65536)
    sending.join()

    assert bytes(got) == PROXY + body


def test_prometheus_gets_the_waiting_requests_and_their_bounds(room: Room) -> None:
    room.hold(most=7)
    room.send()
    wait_for(lambda: room.waiting() == 1)
    asking = room.connect("room.sock")
    asking.sendall(b"GET /metrics/waiting HTTP/1.1\r\nhost: x\r\n\r\n")

    page = whole(asking).decode()

    assert page.startswith("HTTP/1.1 200 OK\r\n")
    assert 'sparkops_gateway_waiting_requests{service="chat"} 1\n' in page
    assert 'sparkops_gateway_waiting_limit_requests{service="chat"} 7\n' in page
    assert 'sparkops_gateway_wait_limit_seconds{service="chat"} 540\n' in page
    assert "# TYPE sparkops_gateway_refused_requests_total counter\n" in page


@pytest.mark.parametrize(
    ("line", "status", "named"),
    [
        ("GET /v1/models", 200, "chat"),
        ("GET /v1/models/chat?x=1", 200, "chat"),
        ("GET /v1/models/other", 404, "model_not_found"),
        ("POST /unknown-model", 404, "Expected one of: chat."),
        ("POST /too-large/32", 413, "up to 32 MiB only. For larger ones, use the path /SERVICE/v1/..."),
        ("POST /no-model", 400, "/SERVICE/v1/..."),
        ("GET /v1/responses/1", 400, "/SERVICE/v1/..."),
    ],
)
def test_on_the_one_address_models_are_listed_and_errors_name_the_way_out(
    room: Room, line: str, status: int, named: str
) -> None:
    slots = {"be_chat_blue": {"release": "chat-1", "servers": ["10.0.0.1:1"]}}
    keep(room.state, active={"chat": "be_chat_blue"}, slots=slots)
    asking = room.connect("room.sock")
    asking.sendall(f"{line} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n".encode() + bytes(100000))

    head, _, body = whole(asking).decode().partition("\r\n\r\n")

    assert head.startswith(f"HTTP/1.1 {status} ")
    assert named in body
    if status == 200:
        models = json.loads(body).get("data", [json.loads(body)])
        assert [(model["id"], model["release"], model["state"]) for model in models] == [("chat", "chat-1", "serving")]
    else:
        assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


def test_a_reply_comes_after_the_body_that_it_refuses(room: Room) -> None:
    asking = room.connect("room.sock")
    asking.sendall(b"POST /too-large/32 HTTP/1.1\r\ncontent-length: 100000\r\n\r\n" + bytes(99_999))
    asking.settimeout(0.5)
    with pytest.raises(TimeoutError):
        asking.recv(1)
    asking.settimeout(WITHIN_S)
    asking.sendall(b"x")

    assert whole(asking).startswith(b"HTTP/1.1 413 ")


def test_a_question_makes_the_room_read_its_files_first(room: Room) -> None:
    (room.state / "services/embed.cfg").write_text("frontend fe_embed\n")
    room.figures()
    room.connect("wait.embed")

    room.hold()
    held = room.send()
    wait_for(lambda: room.waiting() == 1)
    room.release()
    room.figures()
    assert room.answered(held)


READS = """
import asyncio, contextlib, selectors, sys
from pathlib import Path

class Skips(selectors.DefaultSelector):
    def select(self, timeout=None):
        loop.now += timeout or 0.0
        return super().select(0)

class Loop(asyncio.SelectorEventLoop):
    now = 0.0
    def time(self):
        return self.now

def reads():
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("syscr:")))

async def run(seconds):
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(room.Room(4, 40, 1).run(), seconds)

sys.path[0] = sys.argv[1]
import room
before, loop = reads(), Loop(Skips())
loop.run_until_complete(run(3600))
print(reads() - before)
"""
"""Prints how many reads a room does in an hour of its own clock, which skips every pause."""


def test_a_room_in_which_nobody_waits_seldom_reads_its_files(tmp_path: Path) -> None:
    environment = {**os.environ, "GATEWAY_STATE": str(tmp_path / "state"), "GATEWAY_RUN": str(tmp_path)}
    (tmp_path / "state/services").mkdir(parents=True)
    (tmp_path / "state/services/chat.cfg").write_text("{}")
    keep(tmp_path / "state", holds={"chat": {}})

    argv = [sys.executable, "-c", READS, str(PROGRAM)]
    ran = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)

    assert 0 < int(ran.stdout) <= 9 * 3600


def test_an_alias_is_listed_as_a_model_of_its_service(room: Room) -> None:
    (room.state / "services/chat.cfg").write_text("# Further names: fast org/chat\nfrontend fe_chat\n")

    for path, names in {"": ["chat", "fast", "org/chat"], "/org/chat": ["org/chat"]}.items():
        asking = room.connect("room.sock")
        asking.sendall(f"GET /v1/models{path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        body = json.loads(whole(asking).partition(b"\r\n\r\n")[2])
        assert [(model["id"], model["root"]) for model in body.get("data", [body])] == [
            (name, "chat") for name in names
        ]


def test_a_reload_of_haproxy_ends_nothing_and_its_end_ends_the_room(room: Room) -> None:
    room.hold()
    held = room.send()
    wait_for(lambda: room.waiting() == 1)
    room.process.send_signal(signal.SIGUSR1)
    with pytest.raises(subprocess.TimeoutExpired):
        room.process.wait(1.5)
    room.release()
    assert room.answered(held)

    room.admin.close()

    assert room.process.wait(WITHIN_S) == 0
