"""HTTP over a node's streams: requests, with a connection of its own."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import requests
import urllib3.connection
import urllib3.connectionpool
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException
from urllib3.exceptions import ConnectTimeoutError

from sparkops.node.node import Node, Stream

DIAL_S = 5.0
MOST_BYTES = 16 * 2**20
"""Limit of one reply of an engine. A page of metrics and the longest stream of the smoke suite have less than 2 MiB."""
PIECE_BYTES = 2**16


class AnswerTooLong(RequestException):
    """A reply of more bytes than the limit. The rest is not read, and the connection is closed."""


@dataclass(frozen=True)
class BoundedBody:
    """The body of a reply. Reading more than `most` bytes of it closes it and raises the error of `refusal`."""

    body: Any
    most: int
    refusal: Callable[[], Exception]

    def stream(self, amt: int | None = None, *args: Any, **options: Any) -> Iterator[bytes]:
        """Yield pieces of up to PIECE_BYTES as they come; requests reads every body with this method."""
        size = 0
        for piece in self.body.stream(amt or PIECE_BYTES, *args, **options):
            size += len(piece)
            if size > self.most:
                self.body.close()
                raise self.refusal()
            yield piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self.body, name)


class StreamAdapter(HTTPAdapter):
    """Sends every request over streams from `open_stream`, for any host in the URL."""

    def __init__(self, open_stream: Callable[[], Stream]) -> None:
        super().__init__()
        self._pool = _Pool(open_stream)

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> urllib3.connectionpool.HTTPConnectionPool:
        return self._pool

    def close(self) -> None:
        self._pool.close()
        super().close()


class _EngineAdapter(StreamAdapter):
    def send(self, *args: Any, **options: Any) -> requests.Response:
        """Send a request. Reading more than MOST_BYTES of the reply raises AnswerTooLong."""
        response = super().send(*args, **options)
        problem = f"the answer has more than {MOST_BYTES} bytes; stopped"
        response.raw = BoundedBody(response.raw, MOST_BYTES, lambda: AnswerTooLong(problem))
        return response


class _Pool(urllib3.connectionpool.HTTPConnectionPool):
    def __init__(self, open_stream: Callable[[], Stream]) -> None:
        super().__init__("localhost", maxsize=4)
        self.open_stream = open_stream

    def _new_conn(self) -> Any:
        return _Connection(self.open_stream, timeout=self.timeout.connect_timeout)


class _Connection(urllib3.connection.HTTPConnection):
    def __init__(self, open_stream: Callable[[], Stream], timeout: Any) -> None:
        super().__init__("localhost", timeout=timeout)
        self.open_stream = open_stream

    def connect(self) -> None:
        """Open a stream. Raises ConnectTimeoutError, so that a server that is late is told from one that refuses."""
        try:
            self.sock = self.open_stream()
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no connection in time: {error}") from error


def session(node: Node, port: int) -> requests.Session:
    """Return a session whose http:// URLs all go to `port` of the node. It follows no redirect, and knows no https."""
    return _session(lambda: node.dial(port))


def direct(address: str, port: int) -> requests.Session:
    """Return a session whose http:// URLs all go to a port of an address, without a proxy. As `session` else."""
    return _session(lambda: socket.create_connection((address, port), timeout=DIAL_S))


def _session(open_stream: Callable[[], Stream]) -> requests.Session:
    session = requests.Session()
    session.trust_env = False  # no proxy of the operator
    session.adapters.clear()  # what answers is of a foreign image: it sends nothing elsewhere, and has its limit
    session.mount("http://", _EngineAdapter(open_stream))
    session.max_redirects = 0
    return session
