"""This machine as a node: its own Docker, without SSH."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from sparkops.command import Command, Completed
from sparkops.errors import CommandFailed, ConnectionLost, Interrupted, NotReady
from sparkops.nodes.node import OnLine, Stream
from sparkops.nodes.output import Output

TICK_S = 0.2
CHUNK = 64 * 1024


@dataclass(frozen=True)
class LocalNode:
    """Runs commands as child processes, each in a process group of its own."""

    name: str
    cancel: threading.Event = field(default_factory=threading.Event)

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        """See Node.run."""
        process = self._start(command)
        feeder = threading.Thread(target=_feed, args=(process, command.stdin, stdin), daemon=True)
        feeder.start()
        out, err = Output(on_line), Output(on_line)
        try:
            self._read(command, process, out, err)
        except BaseException:
            _stop(process)
            raise
        done = Completed(self.name, command, process.wait(), out.text, err.text)
        if done.exit_code:
            raise CommandFailed(done)
        return done

    def _start(self, command: Command) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            return subprocess.Popen(command.argv, start_new_session=True, **pipes)  # type: ignore[call-overload, no-any-return]
        except FileNotFoundError:
            raise NotReady(
                self.name,
                f"there is no `{command.argv[0]}` on this machine",
                next_step="Install Docker Engine.",
            ) from None

    def _read(self, command: Command, process: subprocess.Popen[bytes], out: Output, err: Output) -> None:
        deadline = time.monotonic() + command.timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, out)  # type: ignore[arg-type]
            selector.register(process.stderr, selectors.EVENT_READ, err)  # type: ignore[arg-type]
            while selector.get_map():
                for key, _ in selector.select(TICK_S):
                    data = os.read(key.fd, CHUNK)
                    key.data.feed(data, final=not data)
                    if not data:
                        selector.unregister(key.fileobj)
                self._check(command, deadline)

    def _check(self, command: Command, deadline: float) -> None:
        if self.cancel.is_set():
            raise Interrupted(f"{self.name}: interrupted")
        if time.monotonic() > deadline:
            raise ConnectionLost(self.name, f"`{command}` did not end within {command.timeout_s:.0f} s")

    def dial(self, port: int) -> Stream:
        """See Node.dial."""
        return socket.create_connection(("127.0.0.1", port), timeout=10.0)

    def pipe(self, command: Command) -> Stream:
        """See Node.pipe."""
        ours, theirs = socket.socketpair()
        with theirs:
            subprocess.Popen(
                command.argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return ours

    def close(self) -> None:
        """Nothing is held."""


def _feed(process: subprocess.Popen[bytes], first: bytes, rest: Iterable[bytes]) -> None:
    """Write stdin; a program that ends early closes it, which is its right."""
    with suppress(BrokenPipeError), process.stdin:  # type: ignore[union-attr]
        process.stdin.write(first)  # type: ignore[union-attr]
        for chunk in rest:
            process.stdin.write(chunk)  # type: ignore[union-attr]


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number, patience_s in ((signal.SIGINT, 10.0), (signal.SIGKILL, 5.0)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return
