"""The socket for requests of operators: JSON lines. Only processes of this container reach it."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

from sparkops import __version__, foreign
from sparkops.errors import SparkopsError
from sparkops.guard import ask
from sparkops.swap import wire

SOCKET = Path(ask.SOCKET)
LINE = 8 * 2**20
"""Most bytes of one question."""
Request = Mapping[str, Any]
Verbs = Mapping[str, Callable[[Request], object]]
"""A verb that returns a context manager takes a lease: its context lasts until the connection ends."""
LEASE_S = 60.0
"""Seconds without a request after which a connection with a lease ends: its client may be gone."""


class ConnectionLeases(ExitStack):
    """The leases of one connection. The same request again renews its lease."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: set[bytes] = set()

    def add(self, request: bytes, lease: AbstractContextManager[object]) -> None:
        """Keep a lease until the connection ends."""
        self.enter_context(lease)
        self.requests.add(request)


def answer(verbs: Verbs, line: bytes, leases: ConnectionLeases) -> dict[str, Any]:
    """Return the reply to one request. An error is a reply too, so that the client does not take the guard for dead."""
    try:
        if line in leases.requests:
            return {"ok": None}
        request = foreign.loads(line)
        wire.require_client(request["format"], __version__)
        reply = verbs[request["op"]](request)
        if isinstance(reply, AbstractContextManager):
            leases.add(line, reply)
            return {"ok": None}
        return {"ok": reply}
    except SparkopsError as error:
        return {"error": str(error), "next_step": error.next_step, "exit_code": error.exit_code}
    except OSError as error:
        return {"error": f"the guard failed: {error}", "next_step": "", "exit_code": 1}
    except (KeyError, TypeError, ValueError) as error:
        step = "Its version may differ from this client's; the next deploy replaces it."
        return {"error": f"{wire.UNKNOWN} {line[:60]!r}: {error!r}", "next_step": step, "exit_code": 1}


class _Caller(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _SocketServer)  # noqa: S101 - only that server makes this class
        with ConnectionLeases() as leases, suppress(TimeoutError):
            while line := self.rfile.readline(LINE):
                self.wfile.write(json.dumps(answer(server.verbs, line, leases)).encode() + b"\n")
                self.wfile.flush()
                if leases.requests:
                    self.connection.settimeout(server.lease_s)


class _SocketServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, file: Path, verbs: Verbs, lease_s: float) -> None:
        self.verbs, self.lease_s = verbs, lease_s
        super().__init__(str(file), _Caller)


def open_socket(verbs: Verbs, file: Path = SOCKET, lease_s: float = LEASE_S) -> socketserver.BaseServer:
    """Serve requests on the socket in threads until `shutdown` is called. Raises OSError."""
    file.unlink(missing_ok=True)
    server = _SocketServer(file, verbs, lease_s)
    file.chmod(0o600)
    threading.Thread(target=server.serve_forever, name="operator socket", daemon=True).start()
    return server
