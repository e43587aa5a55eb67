"""sparkops as a program, without the second and more of processor time in which every start imports it.

A server imports sparkops once, and forks a process for every run, with the arguments, environment, directory and
standard streams of that run; it ends as the program does, by exit code, signal or exception. A test starts a client,
tests/fork_client.py, which stands for that process: `kill` of the client kills it. The server ends with its stdin.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from tests.places import ROOT

CLIENT = Path(__file__).with_name("fork_client.py")
CHECKOUT = ROOT
PROGRAM = "sparkops"
MOST_BYTES = 2**17
"""Of a client's first message: its arguments and environment."""


def command() -> tuple[str, ...]:
    """Return what to start in place of the program `sparkops`; its arguments follow."""
    return (sys.executable, "-IS", str(CLIENT), _server())


@cache
def _server() -> str:
    """Start this process's server. Return the path of its socket."""
    directory = tempfile.mkdtemp(prefix="sparkops-tests-")
    path = f"{directory}/fork-server"
    words = (sys.executable, "-m", "tests.fork_server", path)
    pipe = subprocess.PIPE
    # a session of its own: Ctrl-C at a terminal reaches clients, which pass it on
    process = subprocess.Popen(words, cwd=CHECKOUT, stdin=pipe, stdout=pipe, start_new_session=True)
    atexit.register(_end, process, directory)
    assert process.stdout
    assert process.stdout.readline(), "the fork server did not start; stderr has its reason"
    return path


def _end(process: subprocess.Popen[bytes], directory: str) -> None:
    with process:
        pass  # closes its stdin and waits
    shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class Run:
    """A process, a file descriptor that can be read once it has ended, and its client."""

    pid: int
    ended: int
    client: socket.socket


def serve(listener: socket.socket) -> None:
    """Fork a process for every client. Returns in that process; in the server it raises SystemExit."""
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    selector.register(listener, selectors.EVENT_READ)
    runs: list[Run] = []
    while True:
        key = selector.select()[0][0]  # one at a time: what it leads to may close the next
        if key.fileobj is sys.stdin:
            for run in runs:
                os.kill(run.pid, signal.SIGKILL)
            raise SystemExit
        if key.fileobj is listener:
            client, _ = listener.accept()
            text, streams, _, _ = socket.recv_fds(client, MOST_BYTES, 3)
            pid = os.fork() if text else None
            if pid == 0:
                selector.close()
                for item in (listener, client, *(run.client for run in runs)):
                    item.close()
                for run in runs:
                    os.close(run.ended)
                become(streams, **json.loads(text))
                return
            for stream in streams:
                os.close(stream)
            if pid is None:
                client.close()
                continue
            run = Run(pid, os.pidfd_open(pid), client)
            runs.append(run)
            selector.register(run.ended, selectors.EVENT_READ, run)
            selector.register(client, selectors.EVENT_READ, run)
            continue
        run = key.data
        if key.fd == run.client.fileno():
            number = run.client.recv(16)
            os.kill(run.pid, int(number or signal.SIGKILL))
            if not number:
                selector.unregister(run.client)
            continue
        _, status = os.waitpid(run.pid, 0)
        with suppress(OSError, KeyError):  # the client was killed
            run.client.send(str(os.waitstatus_to_exitcode(status)).encode())
            selector.unregister(run.client)
        selector.unregister(run.ended)
        os.close(run.ended)
        run.client.close()
        runs.remove(run)


def become(streams: Sequence[int], *, arguments: list[str], environment: dict[str, str], directory: str) -> None:
    """Take over a client's streams, arguments, environment and directory."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [PROGRAM, *arguments]


def main() -> None:
    """Import every verb and serve; in a forked process, run sparkops."""
    program = import_module("sparkops.__main__")
    verbs = import_module("sparkops.operator.cli")
    for module in pkgutil.iter_modules(verbs.__path__):
        import_module(f"{verbs.__name__}.{module.name}")
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy all of it
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(sys.argv[1])
        listener.listen(64)
        os.write(1, b"\n")
        serve(listener)
    program.main()


if __name__ == "__main__":
    main()
