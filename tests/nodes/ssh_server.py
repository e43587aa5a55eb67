"""A real SSH server on this machine, in threads: it runs commands with sh and opens connections to ports."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO

import paramiko

CHUNK = 64 * 1024


@dataclass
class SshServer:
    """Lets in the user ops with `client_key`, after it has hung up on the first `hang_ups` connections.

    `lines` are the command lines that it was given. Where it `breaks`, a connection ends when
    a channel is asked for. `greeting` is what its login shell prints on stderr first.
    """

    host_key: paramiko.PKey
    client_key: paramiko.PKey
    listener: socket.socket
    hang_ups: int = 0
    breaks: bool = False
    greeting: bytes = b""
    lines: list[str] = field(default_factory=list)
    transports: list[paramiko.Transport] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                connected, _ = self.listener.accept()
                if self.hang_ups:
                    self.hang_ups -= 1
                    connected.close()
                else:
                    in_thread(self.greet, paramiko.Transport(connected))

    def greet(self, transport: paramiko.Transport) -> None:
        transport.add_server_key(self.host_key)
        self.transports.append(transport)
        visit = Visit(self)
        with suppress(paramiko.SSHException, EOFError, OSError):  # a client that refuses our key
            transport.start_server(server=visit)
            while transport.is_active():
                channel = transport.accept(1)
                if channel is not None and channel.get_id() in visit.dialled:
                    in_thread(join, channel, visit.dialled.pop(channel.get_id()))


@dataclass
class Visit(paramiko.ServerInterface):
    """One connection. `dialled` are the sockets for channels that are about to open."""

    server: SshServer
    dialled: dict[int, socket.socket] = field(default_factory=dict)

    def _break(self) -> None:
        if self.server.breaks:
            self.server.transports[-1].close()

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        allowed = username == "ops" and key == self.server.client_key
        return paramiko.common.AUTH_SUCCESSFUL if allowed else paramiko.common.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002
        self._break()
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.server.lines.append(command.decode())
        in_thread(run, channel, command.decode(), self.server.greeting)
        return True

    def check_channel_direct_tcpip_request(
        self,
        chanid: int,
        origin: tuple[str, int],  # noqa: ARG002
        destination: tuple[str, int],
    ) -> int:
        self._break()
        try:
            self.dialled[chanid] = socket.create_connection(destination)
        except OSError:
            return paramiko.common.OPEN_FAILED_CONNECT_FAILED
        return paramiko.common.OPEN_SUCCEEDED


def join(channel: paramiko.Channel, connected: socket.socket) -> None:
    """Carry bytes both ways until both have ended."""
    with connected:
        back = in_thread(pump, connected.recv, channel.sendall, channel.shutdown_write)
        pump(channel.recv, connected.sendall, lambda: connected.shutdown(socket.SHUT_WR))
        back.join()


def run(channel: paramiko.Channel, line: str, greeting: bytes) -> None:
    if greeting:
        channel.sendall_stderr(greeting)
    pipe = subprocess.PIPE
    with subprocess.Popen(["sh", "-c", line], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as process:
        to, out, err = process.stdin, process.stdout, process.stderr
        assert to and out and err  # noqa: PT018
        in_thread(pump, channel.recv, to.write, to.close)
        errors = in_thread(pump, reader(err), channel.sendall_stderr, lambda: None)
        pump(reader(out), channel.sendall, lambda: None)
        errors.join()
        code = process.wait()
    with suppress(OSError, EOFError):
        channel.send_exit_status(code)
        channel.close()


def reader(pipe: IO[bytes]) -> Callable[[int], bytes]:
    return lambda size: pipe.read(size) or b""


def pump(read: Callable[[int], bytes], write: Callable[[bytes], object], close: Callable[[], object]) -> None:
    with suppress(OSError, ValueError, EOFError):  # paramiko raises EOFError where the client has gone
        while data := read(CHUNK):
            write(data)
    with suppress(OSError, ValueError):
        close()


def in_thread(work: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, daemon=True)
    thread.start()
    return thread


@contextmanager
def listening(host_key: paramiko.PKey, client_key: paramiko.PKey) -> Iterator[SshServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = SshServer(host_key, client_key, listener)
        in_thread(server.serve)
        yield server
        for transport in server.transports:
            transport.close()
        listener.shutdown(socket.SHUT_RDWR)
