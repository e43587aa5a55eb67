"""This machine as a node: its own Docker, without SSH."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from sparkops.command import Command, Completed
from sparkops.errors import CommandFailed, ConnectionLost, Interrupted, NodeError, NotReady
from sparkops.node.node import DIAL, OnLine, Stream, trace
from sparkops.node.streams import Feed, Output, TooLong, feed
from sparkops.node.waiting import retry_start

TICK_S = 0.2
CHUNK = 64 * 1024
STOP_PATIENCE_S = 10.0
DIAL_S = 10.0


@dataclass(frozen=True)
class LocalNode:
    """Runs commands as child processes, each in a process group of its own."""

    name: str
    cancel: threading.Event = field(default_factory=threading.Event)
    docker: str = ""
    """Docker's socket, if it is known: then no `docker` program connects to it, which takes 40 ms of a core."""

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        trace(self.name, command)
        return retry_start(lambda: self._run(command, stdin, on_line), stdin, cancel=self.cancel)

    def _run(self, command: Command, stdin: Iterable[bytes], on_line: OnLine | None) -> Completed:
        process = self._start(command)
        to, out, err = (cast("IO[bytes]", pipe) for pipe in (process.stdin, process.stdout, process.stderr))
        outputs = {out: Output(on_line, answer=on_line is None), err: Output(on_line)}
        with out, err:
            try:
                feeding = self._feed(command, stdin, to)
                self._read(command, process, outputs, feeding)
            except TooLong as error:
                _stop(process)
                raise NodeError(self.name, f"`{command}` {error}") from None
            except BaseException:
                _stop(process)
                raise
        completed = Completed(self.name, command, process.returncode, outputs[out].text, outputs[err].text)
        if completed.exit_code:
            raise CommandFailed(completed)
        return completed

    def _start(self, command: Command) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        try:
            return subprocess.Popen(command.argv, start_new_session=True, stdin=pipe, stdout=pipe, stderr=pipe)
        except OSError as error:
            problem = f"`{command.argv[0]}` cannot be started on this machine: {error.strerror}"
            step = "Install Docker Engine." if command.argv[0] == "docker" else ""
            raise NotReady(self.name, problem, next_step=step) from None

    def _feed(self, command: Command, stdin: Iterable[bytes], to: IO[bytes]) -> Feed:
        def write(data: bytes) -> None:
            to.write(data)
            to.flush()  # a program may wait for its request while its stdin stays open

        try:
            return feed(command.stdin, stdin, write, to.close)
        except OSError as error:
            to.close()
            raise NotReady(self.name, f"`{command}` cannot be run on this machine: {error.strerror}") from None

    def _read(
        self, command: Command, process: subprocess.Popen[bytes], outputs: Mapping[IO[bytes], Output], feeding: Feed
    ) -> None:
        """Read both outputs as they come until they end, then wait for the program itself."""
        deadline = time.monotonic() + command.timeout_s
        with selectors.DefaultSelector() as selector:
            for pipe, output in outputs.items():
                selector.register(pipe, selectors.EVENT_READ, output)
            while selector.get_map():
                for key, _ in selector.select(TICK_S):
                    data = os.read(key.fd, CHUNK)
                    key.data.feed(data, final=not data)
                    if not data:
                        selector.unregister(key.fileobj)
                feeding.check()
                self._check(command, deadline)
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(TICK_S)
            self._check(command, deadline)
        feeding.check()

    def _check(self, command: Command, deadline: float) -> None:
        if self.cancel.is_set():
            raise Interrupted(f"{self.name}: interrupted")
        if time.monotonic() > deadline:
            raise ConnectionLost(self.name, f"`{command}` did not end within {command.timeout_s:g} s")

    def sockets(self) -> str:
        """Return the kernel's tables of TCP sockets in this network, IPv4 and IPv6. Raises OSError."""
        ipv4, ipv6 = Path("/proc/net/tcp"), Path("/proc/net/tcp6")  # a kernel without IPv6 lacks the second one
        return ipv4.read_text() + (ipv6.read_text() if ipv6.exists() else "")

    def dial(self, port: int | str) -> Stream:
        trace(self.name, f"connect to 127.0.0.1:{port}" if isinstance(port, int) else f"connect to {port}")
        if isinstance(port, int):
            return socket.create_connection(("127.0.0.1", port), timeout=DIAL_S)
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(DIAL_S)
        try:
            stream.connect(port)
        except OSError:
            stream.close()
            raise
        return stream

    def pipe(self, command: Command) -> Stream:
        if command == DIAL and self.docker:
            return self.dial(self.docker)
        trace(self.name, command)
        near, far = socket.socketpair()
        with near, far:
            process = subprocess.Popen(
                command.argv,
                stdin=far.fileno(),
                stdout=far.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            return _ProgramSocket(near, process)

    def close(self) -> None:
        """Do nothing: there is no connection."""


class _ProgramSocket(socket.socket):
    """The near end of a program's stdin and stdout, which ends with it.

    The end of stdin alone does not end every program: `docker exec` reads none while it waits for a reply of Docker.
    """

    def __init__(self, near: socket.socket, process: subprocess.Popen[bytes]) -> None:
        super().__init__(near.family, near.type, near.proto, fileno=near.detach())
        self._process = process

    def _real_close(self) -> None:
        """Close the socket once no file made of it is open, as socket.close calls it, and kill the program."""
        super()._real_close()  # type: ignore[misc]
        if self._process.returncode is None:  # not reaped: its ID belongs to no other program
            _signal(self._process, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_PATIENCE_S)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the program and its children, then kill them: background jobs ignore SIGINT."""
    _signal(process, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_PATIENCE_S)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
