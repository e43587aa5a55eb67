"""The Unix socket on which a guard reports its node to `sparkops status`. It reads nothing: who connects gets a report.

The socket's group cannot be that of Docker's socket, because the guard has no capability to change it. So any user may
connect, and the guard asks the kernel who did.
"""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from sparkops.docker.places import REPORT
from sparkops.guard_client.commands import SOCKET

SO_PEERGROUPS = getattr(socket, "SO_PEERGROUPS", 59)  # Linux 4.13; Python has no name for it
GROUPS = 256
"""Python asks for no more. The kernel refuses to list more, and such a user gets no report."""
SEND_S = 10.0


def may_read(user: int, groups: Collection[int], docker_group: int) -> bool:
    """Return whether a user may read the report: root, and whoever may use Docker, which shows the same and more."""
    return user == 0 or docker_group in groups


def caller(connection: socket.socket) -> tuple[int, list[int]]:
    """Return user and groups of the process that has connected, by the kernel. Raises OSError."""
    _, user, group = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    groups = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4 * GROUPS)
    return user, [group, *struct.unpack(f"{len(groups) // 4}I", groups)]


class _Caller(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server, connection = self.server, self.request
        assert isinstance(server, _ReportServer)  # noqa: S101 - only that server makes this class
        connection.settimeout(SEND_S)
        with suppress(OSError):  # the caller has gone
            if may_read(*caller(connection), server.docker.stat().st_gid):
                connection.sendall(json.dumps(server.report()).encode() + b"\n")


class _ReportServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 32

    def __init__(self, file: Path, docker: Path, report: Callable[[], object]) -> None:
        self.docker, self.report = docker, report
        super().__init__(str(file), _Caller)


def serve_reports(
    report: Callable[[], object], file: Path = Path(REPORT), docker: Path = Path(SOCKET)
) -> socketserver.BaseServer:
    """Send a report to each caller in threads until `shutdown` is called. `docker`: Docker's socket. Raises OSError."""
    file.unlink(missing_ok=True)
    server = _ReportServer(file, docker, report)
    file.chmod(0o666)
    threading.Thread(target=server.serve_forever, name="reports", daemon=True).start()
    return server
