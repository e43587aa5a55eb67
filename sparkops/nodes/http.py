"""HTTP over a node's streams: requests, with a connection that we open ourselves."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import requests
import urllib3.connection
import urllib3.connectionpool
from requests.adapters import HTTPAdapter

from sparkops.nodes.node import Node, Stream

DIAL_S = 5.0


class StreamAdapter(HTTPAdapter):
    """Sends every request over streams from `open_stream`, whatever host the URL names."""

    def __init__(self, open_stream: Callable[[], Stream]) -> None:
        super().__init__()
        self._pool = _Pool(open_stream)

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> urllib3.connectionpool.HTTPConnectionPool:
        """The pool of our connections."""
        return self._pool

    def close(self) -> None:
        """Close the pooled streams."""
        self._pool.close()
        super().close()


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
        self.sock = self.open_stream()


def session(node: Node, port: int) -> requests.Session:
    """A session whose http:// URLs all go to `port` of the node."""
    return _session(lambda: node.dial(port))


def direct(address: str, port: int) -> requests.Session:
    """A session whose http:// URLs all go to a port of an address, with nobody in between."""
    return _session(lambda: socket.create_connection((address, port), timeout=DIAL_S))


def _session(open_stream: Callable[[], Stream]) -> requests.Session:
    made = requests.Session()
    made.trust_env = False  # a proxy of the operator's has no part in this
    made.mount("http://", StreamAdapter(open_stream))
    return made
