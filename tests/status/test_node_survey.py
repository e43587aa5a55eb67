"""The figures of engines whose pages are wrong, or never end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from sparkops.status.node_survey import figures, page


def test_a_malformed_line_hides_no_other() -> None:
    text = 'running{engine="0"} 2\nrunning{engine="1"} two\nrunning\ntokens 100\nrunning{engine="2"} 1\n'

    assert figures((200, text), ("running", "tokens")) == {"running": 3.0, "tokens": 100.0}


def sending(pieces: Callable[[], bytes], over: threading.Event) -> socket.socket:
    """Return a connection whose other end sends a piece every 10 ms; an empty one ends it."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        with theirs:
            theirs.recv(2**16)
            while not over.wait(0.01) and (piece := pieces()):
                theirs.sendall(piece)

    threading.Thread(target=send, daemon=True).start()
    return ours


@pytest.mark.local
def test_a_page_that_trickles_has_an_end() -> None:
    over = threading.Event()
    with pytest.raises(TimeoutError):
        page(lambda: sending(lambda: b"x", over), "/metrics", 0.2)
    over.set()


@pytest.mark.local
def test_a_page_that_comes_in_pieces_is_whole() -> None:
    pieces = iter([b"HTTP/1.0 200 OK\r\n", b"\r\nrun", b"ning 2\n", b""])

    assert page(lambda: sending(lambda: next(pieces), threading.Event()), "/metrics", 30.0) == (200, "running 2\n")
