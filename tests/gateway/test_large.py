"""Large requests on the one address: the process reads their model; the tests are the HAProxy before and behind it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.test_room import LARGE_MIB, PROGRAM, PROXY, REPLY, WITHIN_S, Room, wait_for, whole

pytestmark = pytest.mark.local

PROXY6 = PROXY[:13] + b"\x21" + (36).to_bytes(2, "big")
LARGEST = LARGE_MIB * 2**20 // 4
TEXT = "x" * 300_000
MOST = 256  # requests of one client
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    with ExitStack() as stack:
        running = Room(tmp_path, stack)
        running.run.joinpath("services.map").write_text("chat chat\nfast chat\n")
        yield running


def request(body: bytes, *headers: str, size: int = 0) -> bytes:
    lines = ("POST /v1/completions HTTP/1.1", f"content-length: {size or len(body)}", *headers)
    return PROXY + "\r\n".join((*lines, "", "")).encode() + body


def of_client(number: int, data: bytes) -> bytes:
    """Return a request with the address of another client."""
    at = len(PROXY) - 12
    return data[:at] + number.to_bytes(4, "big") + data[at + 4 :]


def of_client6(address: str, data: bytes) -> bytes:
    return PROXY6 + socket.inet_pton(socket.AF_INET6, address) + bytes(20) + data[len(PROXY) :]


def send(room: Room, data: bytes) -> socket.socket:
    """Send a request while something else reads; the sender may be refused."""
    connection = room.connect("large.sock")

    def send_all() -> None:
        with suppress(OSError):
            connection.sendall(data)

    threading.Thread(target=send_all, daemon=True).start()
    return connection


def body_of(model: str, *, first: bool = False) -> bytes:
    fields = {"model": model, "prompt": TEXT} if first else {"prompt": TEXT, "model": model, "stream": True}
    return json.dumps(fields).encode()


def received(room: Room, length: int) -> tuple[socket.socket, bytes]:
    """Return the connection on which a service gets a request, with its first bytes."""
    behind, _ = room.inside.accept()
    behind.settimeout(WITHIN_S)
    got = bytearray()
    while len(got) < length:
        part = behind.recv(65536)
        assert part
        got += part
    return behind, bytes(got)


def refusal(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    head, _, body = whole(connection).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize("first", [False, True], ids=["model last", "model first"])
@pytest.mark.parametrize("model", ["chat", "fast"])
def test_a_large_request_reaches_the_service_of_its_model_whole(room: Room, model: str, first: bool) -> None:
    data = request(body_of(model, first=first))
    connection = send(room, data)

    behind, got = received(room, len(data))
    with behind:
        behind.sendall(REPLY)

    assert got == data
    assert whole(connection) == REPLY


@pytest.mark.parametrize(
    ("body", "status", "code", "text"),
    [
        (body_of("other"), 404, "model_not_found", "Expected one of: chat."),
        (TEXT.encode(), 400, "invalid_request", "/SERVICE/v1/..."),
    ],
    ids=["unknown", "no JSON"],
)
def test_a_large_request_without_a_service_is_refused_after_its_body(
    room: Room, body: bytes, status: int, code: str, text: str
) -> None:
    connection = room.connect("large.sock")
    data = request(body)
    connection.sendall(data[:-1])
    connection.settimeout(0.5)
    with pytest.raises(TimeoutError):
        connection.recv(1)
    connection.settimeout(WITHIN_S)
    connection.sendall(data[-1:])

    got_status, error = refusal(connection)

    assert (got_status, error["code"]) == (status, code)
    assert text in error["message"]


def test_a_client_that_expects_it_is_told_to_send_its_body(room: Room) -> None:
    data = request(body_of("chat"), "expect: 100-continue")
    head = data[: data.index(b"\r\n\r\n", len(PROXY)) + 4]
    connection = room.connect("large.sock")
    connection.sendall(head)

    assert connection.recv(len(CONTINUE), socket.MSG_WAITALL) == CONTINUE
    threading.Thread(target=connection.sendall, args=(data[len(head) :],), daemon=True).start()
    behind, got = received(room, len(data))
    behind.close()
    assert got == data


def fill(room: Room) -> socket.socket:
    """Take all memory that one client can have: half."""
    filling = room.connect("large.sock")
    body = b'{"prompt": "'.ljust(2 * LARGEST, b"x")
    filling.sendall(request(body[:-1], size=len(body)))
    wait_for(lambda: unread(filling) == 0)
    time.sleep(0.3)  # the room reads ahead
    return filling


def unread(connection: socket.socket) -> int:
    """Return the bytes that the other side has not read."""
    return int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def test_bodies_in_memory_are_bounded_and_the_next_one_waits_for_its_share(room: Room) -> None:
    filling = fill(room)
    data = request(body_of("chat"))
    waiting = send(room, data)
    room.inside.settimeout(1)
    with pytest.raises(TimeoutError):
        room.inside.accept()
    room.inside.settimeout(WITHIN_S)

    filling.close()

    behind, got = received(room, len(data))
    behind.close()
    assert got == data
    waiting.close()


def test_a_request_that_gets_no_memory_is_refused_with_a_time(room: Room) -> None:
    filling = fill(room)

    reply = whole(send(room, request(body_of("chat"))))

    assert reply.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 10\r\n" in reply
    assert json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["code"] == "unavailable"
    filling.close()


def passes(room: Room, data: bytes) -> bool:
    """Whether a request reaches its service whole."""
    passed = send(room, data)
    behind, got = received(room, len(data))
    with behind:
        behind.sendall(REPLY)
    return got == data and whole(passed) == REPLY


def largest(model: str = "chat") -> bytes:
    """Return a body of the largest size that HAProxy lets through, with the model last."""
    fields = {"prompt": "", "model": model}
    return json.dumps({**fields, "prompt": "x" * (LARGEST - len(json.dumps(fields)))}).encode()


def test_a_length_takes_no_memory_until_bytes_arrive(room: Room) -> None:
    """Four requests with a length and one byte kept all others out."""
    idle = [room.connect("large.sock") for _ in range(20)]
    for connection in idle:
        connection.sendall(request(b"{", size=LARGEST))
    time.sleep(0.3)

    assert passes(room, request(largest()))


def test_a_client_that_takes_all_it_can_leaves_room_for_the_largest_body_of_another(room: Room) -> None:
    filling = fill(room)

    assert passes(room, of_client(7, request(largest())))
    filling.close()


def test_a_network_of_ipv6_addresses_is_one_client(room: Room) -> None:
    filling = room.connect("large.sock")
    body = b'{"prompt": "'.ljust(2 * LARGEST, b"x")
    filling.sendall(of_client6("fd00::1", request(body[:-1], size=len(body))))
    wait_for(lambda: unread(filling) == 0)
    time.sleep(0.3)

    reply = whole(send(room, of_client6("fd00::2:2", request(largest()))))
    assert reply.startswith(b"HTTP/1.1 503 ")
    assert passes(room, of_client6("fd00:0:0:1::2", request(largest())))
    filling.close()


def test_an_ipv4_address_is_one_client_also_as_one_of_ipv6(room: Room) -> None:
    """A port for both kinds shows all of them as ::ffff:a.b.c.d; they shared one half of the memory."""
    filling = room.connect("large.sock")
    body = b'{"prompt": "'.ljust(2 * LARGEST, b"x")
    filling.sendall(of_client6("::ffff:192.0.2.5", request(body[:-1], size=len(body))))
    wait_for(lambda: unread(filling) == 0)
    time.sleep(0.3)

    reply = whole(send(room, of_client(int.from_bytes(bytes((192, 0, 2, 5)), "big"), request(largest()))))
    assert reply.startswith(b"HTTP/1.1 503 ")
    assert passes(room, of_client6("::ffff:192.0.2.77", request(largest())))
    filling.close()


TURNS = """
import asyncio, socket, sys
sys.path[0] = sys.argv[1]
from large import Body, LargeRequests
from waiting import Waits

SIZE = 3 * 65536

async def take(size):
    pass

async def main():
    large = LargeRequests(128, Waits(1, 1))

    def sent(client):
        here, there = socket.socketpair()
        for end in (here, there):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * SIZE)
        assert here.send(b"[" * SIZE) == SIZE
        body = Body(there, SIZE, b"")
        return body, asyncio.ensure_future(large._service(body, client, take)), here

    others = [sent(b"other") for _ in range(100)]
    body, serving, _ = sent(b"one")
    await asyncio.wait([serving])
    print(sum(len(body.parts) for body, *_ in others))

asyncio.run(main())
"""
"""Prints how many parts of 100 bodies of one client have been read, once three of another client have been scanned."""


def test_a_client_with_many_connections_has_one_turn_as_every_other(tmp_path: Path) -> None:
    """Nested JSON over 100 connections of one address delayed a request of another one by 50 s."""
    (tmp_path / "services.map").write_text("chat chat\n")
    environment = {**os.environ, "GATEWAY_STATE": str(tmp_path), "GATEWAY_RUN": str(tmp_path)}
    argv = [sys.executable, "-B", "-c", TURNS, str(PROGRAM)]
    ran = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)

    assert 100 <= int(ran.stdout) <= 110  # one of each waits for its turn


def test_a_client_has_a_bounded_number_of_requests(room: Room) -> None:
    """HAProxy does not count the connections whose request is with the room."""
    idle = [room.connect("large.sock") for _ in range(MOST)]
    for connection in idle:
        connection.sendall(request(b"{", size=LARGEST))
    time.sleep(0.5)

    assert refusal(send(room, request(largest())))[0] == 503
    assert passes(room, of_client(7, request(largest())))


def waits(room: Room) -> socket.socket:
    """Send a large request that waits. Returns its connection."""
    before = room.waiting()
    connection = send(room, request(largest()))
    wait_for(lambda: room.waiting() == before + 1)
    return connection


def test_a_large_request_that_waits_has_memory_of_its_own_and_gives_it_back(room: Room) -> None:
    """Of 40 places of 128 KiB a client has half: two bodies of 1 MiB."""
    room.hold(most=40)
    leaving, staying = waits(room), waits(room)
    reply = whole(send(room, request(largest())))
    assert reply.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: " in reply
    assert room.figures()["refused_requests_total"] == 1

    leaving.close()
    wait_for(lambda: room.waiting() == 1)
    later = waits(room)
    room.release()
    for _ in (staying, later):
        behind, got = received(room, len(request(largest())))
        with behind:
            behind.sendall(REPLY)
        assert got == request(largest())
    assert {whole(connection) for connection in (staying, later)} == {REPLY}


def test_a_large_request_waits_no_longer_than_it_may(room: Room) -> None:
    room.hold(left_s=-5, longest_s=2)
    assert refusal(waits(room)) == (
        503,
        {
            "message": "No release of this service answers. Retry after the seconds in the Retry-After header.",
            "type": "server_error",
            "param": None,
            "code": "unavailable",
        },
    )


def test_bodies_that_grow_together_beyond_the_memory_are_completed_one_after_another(room: Room) -> None:
    data = request(largest())
    sending = [room.connect("large.sock") for _ in range(8)]

    def send_all() -> None:
        """Send the same part of every body, then the next, as far as each is taken."""
        rest = dict.fromkeys(sending, data)
        for connection in sending:
            connection.setblocking(False)
        while rest:
            for connection in [*rest]:
                with suppress(BlockingIOError):
                    rest[connection] = rest[connection][connection.send(rest[connection][:65536]) :]
                if not rest[connection]:
                    del rest[connection]
            time.sleep(0.001)

    threading.Thread(target=send_all, daemon=True).start()
    for _ in sending:
        behind, got = received(room, len(data))
        with behind:
            behind.sendall(REPLY)
        assert got == data


def test_memory_is_free_again_after_every_end(room: Room) -> None:
    whole_memory = 2 * LARGEST - 100  # of one client
    for _ in range(3):  # each takes all of it
        leaving = room.connect("large.sock")
        leaving.sendall(request(b'{"prompt": "', size=whole_memory))
        leaving.close()
        refused = send(room, request(b"[" + b"1," * (whole_memory // 2)))
        assert refusal(refused)[0] == 400
        data = request(
            b'{"model": "chat", "prompt": "' + os.urandom(whole_memory // 2).hex().encode()[: whole_memory - 40]
        )
        passed = send(room, data)
        behind, got = received(room, len(data))
        with behind:
            behind.sendall(REPLY)
        assert got == data
        assert whole(passed) == REPLY


def test_a_client_that_leaves_while_its_body_waits_behind_the_room_ends_its_request(room: Room) -> None:
    body = json.dumps({"prompt": "x" * 1_900_000, "model": "chat"}).encode()
    leaving = room.connect("large.sock")
    leaving.sendall(request(body))
    behind, _ = room.inside.accept()  # and reads nothing, as a request that is held
    time.sleep(0.5)

    leaving.close()
    time.sleep(1)  # reading at once would let the body pass before the room sees that

    with behind:
        behind.settimeout(WITHIN_S)
        assert len(whole(behind)) < len(body)
