"""The figures of engines whose pages are wrong, or never end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from sparkops.node.survey.node_survey import figures, page


@pytest.mark.parametrize("line", ['running{engine="1"} two', "running"])
def test_a_malformed_page_has_no_figures(line: str) -> None:
    """The error would hide the other engines of the node, and a sum without that line would be wrong."""
    text = f'running{{engine="0"}} 2\n{line}\ntokens 100\n'

    assert figures((200, text), ("running", "tokens")) == {}


def sending(pieces: Callable[[], bytes], over: threading.Event) -> socket.socket:
    """Return a connection whose other end sends a piece as fast as it is read; an empty one ends it."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        with theirs, suppress(ConnectionError):  # ours is closed at the deadline
            theirs.recv(2**16)
            while not over.is_set() and (piece := pieces()):
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
