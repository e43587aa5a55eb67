"""The listener for Prometheus: a port of its own, open while the inventory has `monitoring`, behind a key.

It reads no body, asks nothing of other machines, and shares neither threads nor connections with the port for guards.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socket import socket
from socketserver import BaseServer
from typing import Any

from sparkops.errors import PlanRefused
from sparkops.guard.bounded import Bounded
from sparkops.guard.disk.state import Monitored, State
from sparkops.guard.follow.listener import Caller, Connections, listen
from sparkops.guard.lead.operator_socket import Request, Verbs

PATH = "/metrics"
THREADS, PER_ADDRESS = 4, 2
HEAD_S, DEADLINE_S = 2.0, 10.0  # for request line and headers, and of a connection in all
HEAD_BYTES = 8 * 1024
"""Most bytes of request line and headers."""
CARRIERS = ("join", "peers")
"""Requests of operators that say where a guard serves figures: that to a follower, and that to the leader."""


def allowed(header: str, digest: str) -> bool:
    """Return whether a header Authorization has the key with this SHA-256 (hex). It takes as long for any key."""
    scheme, _, key = header.partition(" ")
    given = sha256(key.strip().encode("latin-1", "replace")).hexdigest()
    return hmac.compare_digest(given, digest) and scheme.lower() == "bearer"


class _Scrape(BaseHTTPRequestHandler):
    server_version, sys_version = "sparkops", ""

    def __init__(self, served: FiguresServer, caller: Caller, *args: Any) -> None:
        self.served, self.caller = served, caller
        super().__init__(*args)

    def do_GET(self) -> None:
        monitored = self.served.monitored
        bounded: Any = self.connection
        if bounded.size <= 0:  # the headers that were read may not be all
            self._send(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return
        if monitored is None or not allowed(self.headers.get("Authorization", ""), monitored.digest):
            self._send(HTTPStatus.UNAUTHORIZED)
            return
        self.caller.sent = True
        bounded.deadline_s += DEADLINE_S - HEAD_S
        if self.path.partition("?")[0] == PATH:
            self._send(HTTPStatus.OK, self.served.figures())
        else:
            self._send(HTTPStatus.NOT_FOUND)

    def _send(self, status: HTTPStatus, content: bytes = b"") -> None:
        self.send_response(status)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write nothing: a scrape comes every few seconds, and strangers could fill the log."""


@dataclass
class FiguresServer:
    """Serves `figures` where the guard's state says. `address`: as for guard.listener.serve."""

    state: State
    figures: Callable[[], bytes]
    log: Callable[[str], None]
    address: str = ""
    monitored: Monitored | None = None
    port: int = 0
    """The port on which it listens; 0 while it does not."""
    _logged: str = ""
    """The result of the last attempt of `look`."""
    _opened: ExitStack = field(default_factory=ExitStack)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> None:
        """Listen where the state says, if it does not yet. A port that is taken is logged once, and retried.

        Raises OSError, Unreadable where the state cannot be read.
        """
        with self._mutex:
            if self.port or not (monitored := self.state.monitored()):
                return
            try:
                self._open(monitored)
                result = f"serving figures on port {self.port}"
            except OSError as error:
                result = f"no figures served: {_failed(monitored, error)}"
            if result != self._logged:
                self.log(result)
            self._logged = result

    def change(self, monitored: Monitored | None) -> None:
        """Serve there from now on, or nowhere. Raises PlanRefused where the port is taken: nothing has changed then.

        The state is written even if this process serves there already, or nothing: the file may say otherwise, after a
        failed write, or before the first `look`. Raises OSError.
        """
        with self._mutex:
            if monitored and self.monitored and self.port and monitored.port == self.monitored.port:
                self.monitored = monitored  # another key
            else:
                self._move(monitored)
            self.state.write_monitored(monitored)

    def _move(self, monitored: Monitored | None) -> None:
        """Open the new port before the old one is closed."""
        opened = self._opened
        if monitored is None:
            self.monitored, self.port, self._opened = None, 0, ExitStack()
        else:
            try:
                self._open(monitored)
            except OSError as error:
                step = "Set monitoring.port in the inventory to a port that no program of a node has."
                raise PlanRefused(_failed(monitored, error), next_step=step) from None
        opened.close()

    def _open(self, monitored: Monitored) -> None:
        with ExitStack() as opening:
            room = Connections(tuple, THREADS, PER_ADDRESS)
            port = opening.enter_context(listen(self.address, monitored.port, self._serve, room))
            self.monitored, self.port, self._opened = monitored, port, opening.pop_all()

    def _serve(self, connection: socket, caller: Caller, server: BaseServer) -> None:
        bounded: Any = Bounded(connection, HEAD_S, HEAD_BYTES)
        _Scrape(self, caller, bounded, caller.address, server)

    def carried(self, verbs: Verbs) -> Verbs:
        """Return the verbs, of which CARRIERS also change where figures are served.

        A request of a client that knows nothing of it changes nothing; None closes the port.
        """

        def carrying(act: Callable[[Request], object]) -> Callable[[Request], object]:
            def reply(request: Request) -> object:
                if "monitoring" in request:
                    self.change(_monitored(request["monitoring"]))
                return act(request)

            return reply

        return {name: carrying(act) if name in CARRIERS else act for name, act in verbs.items()}

    def close(self) -> None:
        """Stop listening."""
        with self._mutex:
            self._opened.close()


def _failed(monitored: Monitored, error: OSError) -> str:
    return f"monitoring.port {monitored.port}: {error.strerror or error}"


def _monitored(request: Request | None) -> Monitored | None:
    return Monitored(int(request["port"]), str(request["digest"])) if request else None
