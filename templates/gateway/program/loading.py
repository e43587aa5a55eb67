"""Start HAProxy from the files, and apply changes that need a reload."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import disk
import haproxy
from disk import ACTIVE, CONFIG, LOADED, STATE, Refused


def start() -> None:
    """Wait for a configuration, then replace this process with HAProxy."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: sys.exit(0))
    with disk.alone():
        recover()
    while not disk.SETTINGS.exists():
        time.sleep(0.1)
    with disk.alone():
        disk.compose({})
        with without_space():
            disk.settle()
        disk.NEXT.replace(CONFIG)
        disk.put(LOADED, disk.digest())
    haproxy.replace_this()


def recover() -> None:
    """Make the state readable and its file writable, as far as the disk allows: HAProxy starts in any case."""
    try:
        disk.kept()
    except Refused as problem:
        print(f"gateway: {problem}: no release is active until the leader sets it", file=sys.stderr, flush=True)
        disk.STORE.file.replace(disk.STORE.file.with_suffix(".bad"))
    with without_space():
        disk.reserve()


@contextmanager
def without_space() -> Iterator[None]:
    """Report a failed write: a start continues with what can be read."""
    try:
        yield
    except OSError as error:
        print(f"gateway: the state cannot be changed: {STATE}: {error.strerror}", file=sys.stderr, flush=True)


def attempt() -> None:
    """Check the files on stdin with HAProxy, in a separate container."""
    write(received())
    disk.ports()
    disk.compose({})
    haproxy.check()


def configure() -> None:
    """Write the files on stdin, a mapping of name to text; null removes a file. Reload if anything differs."""
    texts = received()
    with disk.alone():
        same = all(disk.read(STATE / name) == text for name, text in texts.items())
        if same and disk.digest() == disk.read(LOADED):
            print("unchanged")
            return
        replace(texts)
    haproxy.wait()
    print("configured")


def received() -> dict[str, str]:
    texts: dict[str, str | None] = json.loads(sys.stdin.readline())  # one line: Docker may lose the end of stdin
    if wrong := [name for name in texts if not disk.GIVEN.fullmatch(name)]:
        raise Refused(f"unknown file name: {wrong[0]!r}")
    return {name: text or "" for name, text in texts.items()}


def write(texts: dict[str, str]) -> None:
    """Write files, gateway.cfg last: `start` waits for it. Raises OSError."""
    ordered = sorted(texts.items(), key=lambda item: item[0] == disk.SETTINGS.name)
    disk.put_all({STATE / name: text for name, text in ordered})


def replace(texts: dict[str, str]) -> None:
    """Write files and load them. Restore the old files if that fails. Raises Refused, OSError."""
    before = {name: disk.read(STATE / name) for name in texts}
    running = haproxy.answers()
    now = haproxy.rows(ACTIVE) if running else {}
    try:
        write(texts)
        check_ports()
        disk.compose(now)
        haproxy.check()
        disk.settle()
        if running:
            haproxy.reload()
            disk.put(LOADED, disk.digest())
    except (Refused, OSError):
        write(before)
        disk.compose(now)
        raise


def check_ports() -> None:
    """Raise Refused for a new port that another program has."""
    had = disk.read(CONFIG) if haproxy.answers() else ""
    for port, file in disk.ports().items():
        if not re.search(rf"^  bind \S*:{port}\b", had, re.MULTILINE) and not haproxy.free(port):
            raise Refused(f"port {port} of {file} is in use by another program on this node")
