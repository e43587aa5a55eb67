"""Who gets a guard's report: the socket asks the kernel, on this machine with real users where the test is root."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparkops.guard.report.node_report import READERS, may_read, serve_reports

pytestmark = pytest.mark.local
NOBODY, DOCKER = 65534, 54321
READ = """import os, socket, sys
file, user, *groups = sys.argv[1], *map(int, sys.argv[2:])
os.setgroups(groups); os.setgid(user); os.setuid(user)
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(file)
    print(connection.makefile().read())"""


@pytest.mark.parametrize(
    ("user", "groups", "allowed"),
    [(0, [0], True), (1000, [1000, 998], True), (1000, [998], True), (1000, [1000], False), (1000, [], False)],
)
def test_root_and_the_group_of_docker_may_read(user: int, groups: list[int], *, allowed: bool) -> None:
    assert may_read(user, groups, 998) is allowed


@pytest.fixture
def reports() -> Iterator[Path]:
    """The socket, in a directory that every user reaches as /run/sparkops."""
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        here.chmod(0o755)
        (here / "docker.sock").touch()
        os.chown(here / "docker.sock", -1, DOCKER) if os.geteuid() == 0 else None
        server = serve_reports(lambda: {"format": 1}, here / "status.sock", here / "docker.sock")
        yield here / "status.sock"
        server.shutdown()
        server.server_close()


def read(file: Path, user: int, *groups: int) -> str:
    """What a program of a user gets, which has these groups besides the user's own."""
    argv = [sys.executable, "-c", READ, str(file), str(user), *map(str, groups)]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a program as another user")


@as_root
def test_a_user_of_docker_gets_the_report_and_another_one_nothing(reports: Path) -> None:
    assert json.loads(read(reports, NOBODY, DOCKER)) == {"format": 1}
    assert json.loads(read(reports, 0)) == {"format": 1}
    assert read(reports, NOBODY) == ""
    assert read(reports, NOBODY, NOBODY, 4) == ""


@as_root
def test_the_socket_of_a_guard_that_was_killed_is_replaced(reports: Path) -> None:
    server = serve_reports(lambda: {"format": 2}, reports, reports.with_name("docker.sock"))

    assert json.loads(read(reports, 0)) == {"format": 2}
    server.shutdown()
    server.server_close()


FLOOD = """import os, socket, sys
file, user = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(user); os.setuid(user)
kept = [socket.socket(socket.AF_UNIX) for _ in range(300)]
for connection in kept:
    connection.connect(file)
print(all(connection.recv(1) == b"" for connection in kept))"""


@as_root
def test_a_flood_of_a_user_who_may_not_read_starts_no_thread(reports: Path) -> None:
    started: list[str] = []
    threading.setprofile(lambda *_: started.append(threading.current_thread().name))
    try:
        argv = [sys.executable, "-c", FLOOD, str(reports), str(NOBODY)]
        flooded = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    finally:
        threading.setprofile(None)

    assert (flooded, started) == ("True", [])
    assert json.loads(read(reports, NOBODY, DOCKER)) == {"format": 1}


def test_reports_are_made_for_a_bounded_number_of_callers_at_once(tmp_path: Path) -> None:
    """A Docker that hangs makes each of them last."""
    (tmp_path / "docker.sock").touch()
    os.chown(tmp_path / "docker.sock", -1, os.getgid())
    go, making, most = threading.Event(), 0, 0
    lock = threading.Lock()

    def report() -> object:
        nonlocal making, most
        with lock:
            making += 1
            most = max(most, making)
        go.wait(60)
        with lock:
            making -= 1
        return {"format": 1}

    file = tmp_path / "status.sock"
    server = serve_reports(report, file, tmp_path / "docker.sock")
    with ExitStack() as stack:
        callers = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3 * READERS)]
        for caller in callers:
            caller.connect(str(file))
        while making < READERS:
            time.sleep(0.01)
        time.sleep(0.3)  # for a thread more
        go.set()
        answers = [caller.makefile().read() for caller in callers]
    server.shutdown()
    server.server_close()

    assert (most, {*answers}) == (READERS, {'{"format": 1}\n'})
