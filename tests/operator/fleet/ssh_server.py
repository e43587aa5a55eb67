"""A real SSH server on this machine, in threads: it runs commands with sh and opens connections to ports."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

import paramiko

CHUNK = 64 * 1024
STREAM_LOCAL = "direct-streamlocal@openssh.com"


class ServerTransport(paramiko.Transport):
    """A server's connection that reads which Unix socket a channel is to be joined to, as OpenSSH's PROTOCOL has it.

    `accepted` are the programs to start once the reply to their request is sent, so that none ends before it.
    """

    socket_path = ""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        table: dict[int, Callable[[paramiko.Message], None]] = self._handler_table  # type: ignore[attr-defined]
        self.open_channel_asked = table[paramiko.common.MSG_CHANNEL_OPEN]
        table[paramiko.common.MSG_CHANNEL_OPEN] = self._read_path
        self.accepted: list[Callable[[], object]] = []
        handlers: dict[int, Callable[[paramiko.Channel, paramiko.Message], None]]
        handlers = paramiko.Transport._channel_handler_table  # type: ignore[attr-defined]
        self.reply = handlers[paramiko.common.MSG_CHANNEL_REQUEST]
        self._channel_handler_table = {**handlers, paramiko.common.MSG_CHANNEL_REQUEST: self._reply_and_start}

    def _reply_and_start(self, channel: paramiko.Channel, message: paramiko.Message) -> None:
        self.reply(channel, message)
        while self.accepted:
            self.accepted.pop()()

    def _read_path(self, message: paramiko.Message) -> None:
        kind, _ = message.get_text(), [message.get_int() for _ in range(3)]
        if kind == STREAM_LOCAL:
            self.socket_path, reserved = message.get_text(), (message.get_text(), message.get_int())
            assert (reserved, message.get_remainder()) == (("", 0), b"")
        message.rewind()
        self.open_channel_asked(message)


@dataclass
class SshServer:
    """Lets in the user ops with `client_key`, after it has hung up on the first `hang_ups` connections.

    `lines` are the command lines that it was given. Where it `breaks`, a connection ends when
    a channel is asked for. `greeting` is what its login shell prints on stderr first. A channel is closed `linger_s`
    after its program has ended; `stdin_ended` tells of each whether the client had ended its stdin by then.
    `execute` is what it does with a command line, in place of a shell; `sockets` are Unix sockets of its own, by path.
    """

    host_key: paramiko.PKey
    client_key: paramiko.PKey
    listener: socket.socket
    hang_ups: int = 0
    breaks: bool = False
    greeting: bytes = b""
    linger_s: float = 0.0
    stdin_ended: list[bool] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    execute: Callable[[SshServer, paramiko.Channel, str], None] = field(default_factory=lambda: run)
    sockets: Mapping[str, Callable[[], socket.socket]] = field(default_factory=dict)
    channels: list[str] = field(default_factory=list)
    """The kind of each channel that was asked for."""
    transports: list[paramiko.Transport] = field(default_factory=list)
    programs: list[subprocess.Popen[bytes]] = field(default_factory=list)

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
                    in_thread(self.greet, ServerTransport(connected))

    def greet(self, transport: ServerTransport) -> None:
        transport.add_server_key(self.host_key)
        self.transports.append(transport)
        visit = Visit(self, transport)
        kept = []  # paramiko closes a channel without a reference, and a busy client names its program late
        with suppress(paramiko.SSHException, EOFError, OSError):  # a client that refuses our key
            transport.start_server(server=visit)
            while transport.is_active():
                channel = transport.accept(1)
                kept.append(channel)
                if channel is not None and channel.get_id() in visit.dialled:
                    in_thread(join, channel, visit.dialled.pop(channel.get_id()))


@dataclass
class Visit(paramiko.ServerInterface):
    """One connection. `dialled` are the sockets for channels that are about to open."""

    server: SshServer
    transport: ServerTransport
    dialled: dict[int, socket.socket] = field(default_factory=dict)

    def _break(self) -> None:
        if self.server.breaks:
            self.server.transports[-1].close()

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        allowed = username == "ops" and key == self.server.client_key
        return paramiko.common.AUTH_SUCCESSFUL if allowed else paramiko.common.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        self._break()
        self.server.channels.append(kind)
        if kind == STREAM_LOCAL:
            return self._dial(chanid, socket.AF_UNIX, self.transport.socket_path)
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.server.lines.append(command.decode())
        self.transport.accepted.append(lambda: in_thread(self.server.execute, self.server, channel, command.decode()))
        return True

    def check_channel_direct_tcpip_request(
        self,
        chanid: int,
        origin: tuple[str, int],  # noqa: ARG002
        destination: tuple[str, int],
    ) -> int:
        self._break()
        return self._dial(chanid, socket.AF_INET, destination)

    def _dial(self, chanid: int, family: int, target: str | tuple[str, int]) -> int:
        if isinstance(target, str) and target in self.server.sockets:
            self.dialled[chanid] = self.server.sockets[target]()
            return paramiko.common.OPEN_SUCCEEDED
        connection = socket.socket(family)
        try:
            connection.connect(target)
        except OSError:
            connection.close()
            return paramiko.common.OPEN_FAILED_CONNECT_FAILED
        self.dialled[chanid] = connection
        return paramiko.common.OPEN_SUCCEEDED


def join(channel: paramiko.Channel, connected: socket.socket) -> None:
    """Carry bytes both ways until both have ended."""
    with connected:
        back = in_thread(pump, connected.recv, channel.sendall, channel.shutdown_write)
        pump(channel.recv, connected.sendall, lambda: connected.shutdown(socket.SHUT_WR))
        back.join()


def run(server: SshServer, channel: paramiko.Channel, line: str) -> None:
    if server.greeting:
        channel.sendall_stderr(server.greeting)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["sh", "-c", line], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
    ) as process:
        server.programs.append(process)
        to, out, err = process.stdin, process.stdout, process.stderr
        assert to and out and err  # noqa: PT018
        in_thread(pump, channel.recv, to.write, to.close)
        # Closed like that, a program whose client has gone ends at its next output, as it does with sshd.
        errors = in_thread(pump, reader(err), channel.sendall_stderr, err.close)
        pump(reader(out), channel.sendall, out.close)
        errors.join()
        code = process.wait()
    with suppress(OSError, EOFError):
        if code >= 0:  # sshd sends no status of a program that was killed
            channel.send_exit_status(code)
        channel.shutdown_write()
        time.sleep(server.linger_s)
        server.stdin_ended.append(bool(channel.eof_received))
        channel.close()


def reader(pipe: IO[bytes]) -> Callable[[int], bytes]:
    return lambda size: pipe.read(size) or b""


def pump(read: Callable[[int], bytes], write: Callable[[bytes], object], close: Callable[[], object]) -> None:
    with suppress(OSError, ValueError, EOFError):  # paramiko raises EOFError where the client has gone
        while data := read(CHUNK):
            write(data)
    with suppress(OSError, ValueError, EOFError):
        close()


def in_thread(work: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, daemon=True)
    thread.start()
    return thread


@contextmanager
def listening(host_key: paramiko.PKey, client_key: paramiko.PKey, **more: Any) -> Iterator[SshServer]:
    """Serve on a free port. `more` are further fields."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = SshServer(host_key, client_key, listener, **more)
        in_thread(server.serve)
        yield server
        for transport in server.transports:
            transport.close()
        listener.shutdown(socket.SHUT_RDWR)
        for program in server.programs:
            with suppress(ProcessLookupError):  # most have ended
                os.killpg(program.pid, signal.SIGKILL)
