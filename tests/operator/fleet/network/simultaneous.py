"""A user of the node answers for an engine that is down: by a SYN of their own, not by the SYN-ACK of a listener.

TCP opens a connection also where both sides connect to each other (RFC 9293 section 3.5). The attacker listens on the
engine's port with a full queue, so that a client's SYN stays without an answer; reads the client's port in
/proc/net/tcp, which every user may read; binds the engine's port once more and connects from it to the client.

`case` runs attacker and client with the rules of stdin in a network of its own; `attack` and `ask` are their programs.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ATTACKER, GATEWAY, PORT = 65534, 10842, 8001
SYN_SENT = "02"
REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\ntaken"
WAITS_S = 8.0
"""How long the client waits for a connection: its SYN is sent again after 1, 3 and 7 s."""


def shared(stack: ExitStack) -> socket.socket:
    """Return a socket that is bound to the port of the engine, whatever else this user has bound to it."""
    own = stack.enter_context(socket.socket())
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    own.bind(("127.0.0.1", PORT))
    return own


def waiting() -> set[int]:
    """Return the ports of clients that wait for an answer from the port of the engine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    calling = [row[1] for row in rows if row[3] == SYN_SENT and row[2].endswith(f":{PORT:04X}")]
    return {int(local.partition(":")[2], 16) for local in calling}


def become(user: int) -> None:
    """Give up the rights of root, after all modules are imported."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def attack() -> None:
    """Answer every client as the user of the attacker, until the process is killed."""
    become(ATTACKER)
    with ExitStack() as stack:
        shared(stack).listen(0)
        fillers = [stack.enter_context(socket.socket()) for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", PORT))
        own = {filler.getsockname()[1] for filler in fillers}
        print("listens", flush=True)
        while True:
            for port in waiting() - own:
                with ExitStack() as attempt:
                    calling = shared(attempt)
                    calling.settimeout(0.5)
                    code = calling.connect_ex(("127.0.0.1", port))
                    print("tried", flush=True)
                    if code == 0 and calling.recv(65536):
                        calling.sendall(REPLY)


def ask() -> None:
    """Print the answer to a request to the engine by a client that is the gateway's user."""
    become(GATEWAY)
    try:
        with socket.socket() as connection:
            connection.settimeout(WAITS_S)
            connection.connect(("127.0.0.1", PORT))
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 6\r\n\r\nsecret")
            print(connection.recv(65536).decode().rpartition("\r\n")[2])
    except OSError as error:
        print(type(error).__name__)


def program(name: str) -> tuple[str, ...]:
    """Return the command of one of the programs of this module."""
    return sys.executable, "-m", "tests.operator.fleet.network.simultaneous", name


@contextmanager
def attacked() -> Iterator[Callable[[], bool]]:
    """Run the attacker beside what is tested. The function waits until it has tried."""
    with subprocess.Popen(program("attack"), stdout=subprocess.PIPE, text=True) as attacker:
        try:
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == "listens\n"
            yield lambda: attacker.stdout is not None and attacker.stdout.readline() == "tried\n"
        finally:
            attacker.kill()


def case() -> None:
    """Attack a client with the rules of stdin; print whether the attacker tried, and what the client got."""
    apply(sys.stdin.read())
    with attacked() as tried:
        got = subprocess.run(program("ask"), check=True, capture_output=True, text=True).stdout
        print("tried" if tried() else "ended", got, end="")


def apply(rules: str) -> None:
    """Close the ports of this network, which has no more than a loopback that is down."""
    subprocess.run(("ip", "link", "set", "lo", "up"), check=True)
    subprocess.run(("nft", "-f", "-"), input=rules, text=True, check=True)


if __name__ == "__main__":
    {"attack": attack, "ask": ask, "case": case}[sys.argv[1]]()
