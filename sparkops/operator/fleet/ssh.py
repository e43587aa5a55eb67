"""A node behind SSH: one connection, a channel for each command, and a deadline on everything."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import cast

import paramiko

from sparkops.command import Command, Completed, quote
from sparkops.errors import CommandFailed, ConnectionLost, Interrupted, NodeError
from sparkops.node.node import OnLine, Stream, trace
from sparkops.node.streams import Feed, Output, TooLong, feed
from sparkops.node.waiting import retry_start

TICK_S = 0.2
CHUNK = 64 * 1024
GONE = (OSError, EOFError, paramiko.SSHException)
"""Errors of paramiko for a lost connection; EOFError is no OSError."""
OPEN_TIMEOUT_S = 15.0
STOP_PATIENCE_S = 10.0
STREAM_LOCAL = "direct-streamlocal@openssh.com"
OPEN_SOCKET = paramiko.common.cMSG_CHANNEL_OPEN + len(STREAM_LOCAL).to_bytes(4, "big") + STREAM_LOCAL.encode()
"""Start of the message that opens such a channel."""
PID_BYTES = 10

# Closing a channel does not end the program behind it, so a long one prints its process ID first.
ANNOUNCED = ("sh", "-c", 'echo "$$" >&2; exec "$@"', "sparkops")


class SocketTransport(paramiko.Transport):
    """A connection that opens channels to Unix sockets as well, which paramiko 5.1 cannot (OpenSSH's PROTOCOL, 2.4)."""

    path = ""

    def open_socket(self, path: str) -> paramiko.Channel:
        """Open a channel to a Unix socket; one at a time. Raises SSHException, EOFError."""
        self.path = path
        return self.open_channel(STREAM_LOCAL, timeout=OPEN_TIMEOUT_S)

    def _send_user_message(self, data: paramiko.Message) -> None:
        if data.asbytes().startswith(OPEN_SOCKET):
            for field in (self.path, ""):  # the second is reserved, as the number is
                data.add_string(field)
            data.add_int(0)
        super()._send_user_message(data)  # type: ignore[misc]


@dataclass(frozen=True)
class SshNode:
    """A connected node. See operator/fleet/connect.py for how it is connected."""

    name: str
    client: paramiko.SSHClient
    cancel: threading.Event = field(default_factory=threading.Event)

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        trace(self.name, command)
        return retry_start(lambda: self._run(command, stdin, on_line), stdin, cancel=self.cancel)

    def _run(self, command: Command, stdin: Iterable[bytes], on_line: OnLine | None) -> Completed:
        long = on_line is not None
        try:
            channel = self._open(command, ANNOUNCED if long else ())
            feeding = feed(command.stdin, stdin, channel.sendall, lambda: _end_stdin(channel), GONE)
            out = Output(on_line, answer=not long)
            running = _Running(command, channel, feeding, out, Output(on_line), announced=long)
            self._wait(running)
            exit_code = channel.recv_exit_status()
        except TooLong as error:
            raise NodeError(self.name, f"`{command}` {error}") from None
        except GONE as error:
            raise self._lost(command, error) from error
        if exit_code == -1:
            raise self._lost(command, "the program was killed or the connection was lost")
        completed = Completed(self.name, command, exit_code, running.out.text, running.err.text)
        if exit_code:
            raise CommandFailed(completed)
        return completed

    def _open(self, command: Command, prefix: tuple[str, ...] = ()) -> paramiko.Channel:
        transport = self.client.get_transport()
        if transport is None or not transport.is_active():
            raise paramiko.SSHException("the connection is closed")
        channel = transport.open_session(timeout=OPEN_TIMEOUT_S)
        channel.settimeout(command.timeout_s)
        channel.exec_command(quote(*prefix, *command.argv))
        return channel

    def _wait(self, running: _Running) -> None:
        """Read both outputs as they come: reading one after the other hangs on a full pipe."""
        deadline = time.monotonic() + running.command.timeout_s
        try:
            while running.read():
                running.wait()
                running.feeding.check()
                if self.cancel.is_set():
                    raise Interrupted(f"{self.name}: interrupted")
                if time.monotonic() > deadline:
                    raise paramiko.SSHException(f"no result within {running.command.timeout_s:g} s")
            running.feeding.check()
        except BaseException:
            self._stop(running)
            raise
        finally:
            running.channel.shutdown_read()

    def _stop(self, running: _Running) -> None:
        """Interrupt the program on the node and give it time to clean up. A lost connection is no error here."""
        deadline = time.monotonic() + STOP_PATIENCE_S
        with suppress(*GONE), closing(running.channel):
            while running.announced and running.pid is None and running.read() and time.monotonic() < deadline:
                running.wait()  # its process ID is on its way
            if running.pid is not None:
                self._open(Command(("kill", "-INT", running.pid), timeout_s=STOP_PATIENCE_S))
                running.channel.status_event.wait(STOP_PATIENCE_S)

    def _lost(self, command: Command, why: object) -> ConnectionLost:
        reason = str(why) or type(why).__name__
        step = "Outcome unknown; check `sparkops status`."
        return ConnectionLost(self.name, f"`{command}`: {reason}", next_step=step if command.changes else "")

    def dial(self, port: int | str) -> Stream:
        """See Node.dial. Goes through the SSH connection, so nothing else needs to be open."""
        trace(self.name, f"connect to 127.0.0.1:{port}" if isinstance(port, int) else f"connect to {port}")
        transport = self.client.get_transport()
        try:
            if transport is None:
                raise ConnectionError("the connection is closed")
            if isinstance(port, str):
                return cast("SocketTransport", transport).open_socket(port)  # as connect.py has opened it
            return transport.open_channel("direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0), timeout=OPEN_TIMEOUT_S)
        except paramiko.SSHException as error:
            raise ConnectionRefusedError(f"{self.name}: port {port}: {error}") from error
        except EOFError as error:
            raise ConnectionError(f"{self.name}: port {port}: the connection ended") from error

    def pipe(self, command: Command) -> Stream:
        trace(self.name, command)
        try:
            return self._open(command)
        except (paramiko.SSHException, EOFError) as error:
            raise ConnectionError(f"{self.name}: `{command}`: {error or 'the connection ended'}") from error

    def close(self) -> None:
        self.client.close()


def _end_stdin(channel: paramiko.Channel) -> None:
    """End the stdin of a program that runs. One that has ended closes its channel at the same moment.

    paramiko may then send the end of stdin after its answer to that, and sshd closes the whole connection: "ieof packet
    referred to nonexistent channel" (paramiko#1115, paramiko#1705; 37 of 5,705 commands).
    """
    if not channel.exit_status_ready():
        channel.shutdown_write()


@dataclass
class _Running:
    """A command on its channel."""

    command: Command
    channel: paramiko.Channel
    feeding: Feed
    out: Output
    err: Output
    announced: bool
    pid: str | None = None
    early: bytes = b""
    arrived: threading.Event = field(default_factory=threading.Event)
    """Set on output and at its end. `fileno` is no alternative: paramiko may close its pipe while it writes to it."""

    def __post_init__(self) -> None:
        for buffer in (self.channel.in_buffer, self.channel.in_stderr_buffer):
            buffer.set_event(self.arrived)

    def wait(self) -> None:
        """Wait for more output, TICK_S at most. An output that was read to its end has reset the event of both."""
        if not (self.channel.recv_ready() or self.channel.recv_stderr_ready()):
            self.arrived.wait(TICK_S)

    def read(self) -> bool:
        """Take a chunk of each output: more would keep the deadline waiting. False when both have ended."""
        channel = self.channel
        if channel.recv_ready():
            self.out.feed(channel.recv(CHUNK))
        if channel.recv_stderr_ready():
            self._feed_err(channel.recv_stderr(CHUNK))
        if not (channel.eof_received or channel.closed) or channel.recv_ready() or channel.recv_stderr_ready():
            return True
        self.out.feed(b"", final=True)
        self.err.feed(b"", final=True)
        return False

    def _feed_err(self, data: bytes) -> None:
        """Take out the process ID: the first line of digits. A login shell may print lines before it."""
        self.early += data
        while self.announced and self.pid is None and b"\n" in self.early:
            line, _, self.early = self.early.partition(b"\n")
            if line.isdigit():
                self.pid = line.decode()
            else:
                self.err.feed(line + b"\n")
        if self.pid is None and len(self.early) > PID_BYTES:
            self.announced = False  # no process ID: it would be a line of its own
        if self.pid is not None or not self.announced:
            self.err.feed(self.early)
            self.early = b""
