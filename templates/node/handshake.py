"""Connect the two ends of a transfer: one listens, the other calls, and each proves that it has the key."""

from __future__ import annotations

import hmac
import json
import secrets
import selectors
import socket
import threading
import time
from collections import deque
from queue import SimpleQueue

from pieces import CHUNK, MAC, Broken, Lines, Wire, key_for

APART = 69
"""Exit code if the ends cannot connect."""
NONCE = 32
CONNECT_S, HANDSHAKE_S, ACCEPT_S = 5.0, 10.0, 60.0
MOST_CALLERS = 16
# Detect a vanished peer after a minute, with or without bytes in transit.
ALIVE = (
    (socket.TCP_KEEPIDLE, 15),
    (socket.TCP_KEEPINTVL, 15),
    (socket.TCP_KEEPCNT, 4),
    (socket.TCP_USER_TIMEOUT, 60_000),
)


def report(**message):
    print(json.dumps(message), flush=True)


def listen(hosts, token):
    """Listen on those of `hosts` that are this node's, and accept the first caller with the token."""
    listeners = []
    for host in hosts:
        try:
            family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
            listeners.append(socket.create_server(address, family=family, backlog=4))
        except OSError:  # a name, or an address of a router in front of the node
            continue
    if not listeners:
        raise SystemExit(APART)
    report(at=[listener.getsockname()[:2] for listener in listeners])
    end = time.monotonic() + ACCEPT_S
    try:
        return admit(listeners, end, token)
    finally:
        for listener in listeners:
            listener.close()


def admit(listeners, end, token):
    """Accept callers until monotonic time `end`. Those without the token are refused; a silent one delays no other."""
    admitted, callers = SimpleQueue(), deque()
    wake, wakened = socket.socketpair()
    with selectors.DefaultSelector() as selector, wake, wakened:
        for source in (*listeners, wakened):
            selector.register(source, selectors.EVENT_READ)
        while admitted.empty() and (remaining_s := end - time.monotonic()) > 0:
            for ready, _ in selector.select(min(remaining_s, 1.0)):
                if ready.fileobj is not wakened:
                    call(ready.fileobj.accept()[0], callers, (token, admitted, wake))
    if admitted.empty():
        raise SystemExit(APART)
    chosen, connection = admitted.get()
    for caller in callers:
        if caller is not chosen:
            hang_up(caller)
    return connection


def call(caller, callers, arguments):
    """Start the handshake with a caller in a thread. With too many callers, the oldest one is refused."""
    if len(callers) == MOST_CALLERS:
        hang_up(callers.popleft())
    callers.append(caller)
    threading.Thread(target=shake, args=(caller, *arguments), daemon=True).start()


def shake(caller, token, admitted, wake):
    try:
        admitted.put((caller, greeted(caller, token, receiving=True)))
        wake.send(b"!")
    except (Broken, OSError):
        caller.close()


def hang_up(caller):
    """End a connection, also for a thread that reads from it."""
    try:
        caller.shutdown(socket.SHUT_RDWR)
    except OSError:  # it has ended
        pass


def connect_all(targets):
    """Connect to every (token, places). Reports the numbers of unreachable ones."""
    connections = [connect(places, token) for token, places in targets]
    wires = [Wire(*connection) for connection in connections if connection]
    if not wires:
        raise SystemExit(APART)
    if len(wires) < len(connections):
        report(apart=[number for number, connection in enumerate(connections) if not connection])
    return wires[0] if len(wires) == 1 else Lines(wires)


def connect(places, token):
    """Connect to the first of `places` where an end with the token listens; None without one."""
    for host, port in places:
        try:
            called = socket.create_connection((host, port), timeout=CONNECT_S)
        except OSError:
            continue
        try:
            return greeted(called, token, receiving=False)
        except (Broken, OSError):
            called.close()
    return None


def greeted(connected, token, *, receiving):
    """Prove the token to each other, the receiving end first. Returns the file and the key of the pieces."""
    end = time.monotonic() + HANDSHAKE_S
    connected.settimeout(HANDSHAKE_S)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ALIVE:
        connected.setsockopt(socket.IPPROTO_TCP, option, value)
    own = secrets.token_bytes(NONCE)
    connected.sendall(own)
    other = take(connected, NONCE, end)
    nonces = (other, own) if receiving else (own, other)
    proofs = [key_for(token, what, *nonces) for what in (b"receiving end", b"sending end")]
    if receiving:
        connected.sendall(proofs[0])
        prove(take(connected, MAC, end), proofs[1])
    else:
        prove(take(connected, MAC, end), proofs[0])
        connected.sendall(proofs[1])
    connected.settimeout(None)
    return connected.makefile("rb" if receiving else "wb", buffering=CHUNK), key_for(token, b"pieces", *nonces)


def prove(shown, right):
    if not hmac.compare_digest(shown, right):
        raise Broken("the other end does not have the token")


def take(connected, size, end):
    """Receive `size` bytes until monotonic time `end`."""
    received = b""
    while len(received) < size:
        connected.settimeout(max(end - time.monotonic(), 0.001))
        more = connected.recv(size - len(received))
        if not more:
            raise Broken("the other end closed the connection")
        received += more
    return received
