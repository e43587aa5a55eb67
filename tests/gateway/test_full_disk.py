"""A full disk on the gateway's node, and a crash at any byte: traffic can be moved."""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.here import WITHIN_S, Program, configured
from tests.guard.small_disk import FULL, fill, mounted
from tests.ports import free_port

pytestmark = pytest.mark.local
HOLD = ("hold", "chat", "1.2", "60", "540", "500")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """A gateway with two releases whose volume is full."""
    with mounted(tmp_path / "state", kib=1024) as state:
        gateway = Program(state, tmp_path / "run")
        gateway.give(configured(state, gateway.run))
        with gateway.started():
            for slot, port in (("blue", 8001), ("green", 8002)):
                assert gateway.call("point", "chat", slot, slot, f"127.0.0.1:{port}").returncode == 0
            assert gateway.call("switch", "chat", "blue", "blue").returncode == 0
            fill(state)
            yield gateway


def test_a_full_disk_stops_no_switch_and_no_hold(program: Program) -> None:
    for words, backend in ((HOLD, "be_chat_wait"), (("switch", "chat", "green", "green"), "be_chat_green")):
        called = program.call(*words)
        assert (called.returncode, called.stderr) == (0, "")
        assert program.shown()["map"] == f"chat {backend}\n"
    called = program.call("point", "chat", "blue", "blue-2", "127.0.0.1:8003")
    assert (called.returncode, called.stderr) == (0, "")
    assert program.call("switch", "chat", "down").returncode == 0
    assert program.shown()["slots"]["be_chat_blue"]["release"] == "blue-2"


def test_a_gateway_starts_on_a_full_disk_and_serves_the_release_of_its_file(program: Program, tmp_path: Path) -> None:
    assert program.call("switch", "chat", "green", "green").returncode == 0
    shutil.copytree(program.state, tmp_path / "other", ignore=shutil.ignore_patterns("filling"))
    text = (tmp_path / "other/gateway.cfg").read_text()
    with mounted(tmp_path / "second", kib=1024) as state:
        shutil.copytree(tmp_path / "other", state, dirs_exist_ok=True)
        other = Program(state, tmp_path / "second-run")
        (state / "gateway.cfg").write_text(text.replace(str(program.run), str(other.run)))
        other.give(configured(state, other.run))
        fill(state)
        with other.started():
            assert other.shown()["map"] == "chat be_chat_green\n"
            assert "be_chat_green" in other.shown()["haproxy"]["map"]
            assert other.call("switch", "chat", "blue", "blue").returncode == 0


def test_a_change_for_which_the_disk_has_no_space_names_it_and_changes_nothing(program: Program) -> None:
    before = program.shown()
    files_ = {"services/second.cfg": "frontend fe_second\n" + "# x\n" * 10000}
    called = program.call("configure", stdin=json.dumps(files_) + "\n")

    assert called.returncode == 1
    assert called.stderr.count("\n") == 1
    assert FULL in called.stderr
    after = program.shown()
    assert (after["files"], after["map"]) == (before["files"], before["map"])
    assert after["haproxy"]["map"] == before["haproxy"]["map"]


def test_a_gateway_takes_the_ports_over_from_one_that_ends(tmp_path: Path) -> None:
    """Both run for a while: gateway/gateway_version.py. A closed port would refuse a request."""
    ports = free_port(), free_port()
    gateways = [Program(tmp_path / name, tmp_path / f"{name}-run") for name in ("old", "new")]
    for gateway in gateways:
        gateway.give(configured(gateway.state, gateway.run, ports))
    old, new = gateways
    ended, statuses = threading.Event(), Counter[int]()

    def ask() -> None:
        while not ended.is_set():
            with closing(HTTPConnection("127.0.0.1", ports[0], timeout=WITHIN_S)) as connection:
                connection.request("GET", "/v1/models")
                statuses[connection.getresponse().status] += 1

    with old.started() as process, ThreadPoolExecutor() as client:
        asking = client.submit(ask)
        try:
            with new.started():
                process.send_signal(signal.SIGUSR1)  # of `docker stop`, by the image
                process.wait(WITHIN_S)
                before = statuses[503]
                end = time.monotonic() + WITHIN_S
                while statuses[503] < before + 10 and not asking.done() and time.monotonic() < end:
                    time.sleep(0.1)
                ended.set()
                asking.result(WITHIN_S)
        finally:
            ended.set()

    assert statuses.keys() == {503}, "no release serves"
    assert statuses[503] > before


def test_a_write_that_is_torn_at_any_byte_leaves_the_state_before_it(disk: Any) -> None:
    for number in range(3):
        disk.activate({"chat": f"be_{number}"})
    file = disk.STORE.file
    before = file.read_bytes()
    disk.activate({"chat": "be_torn"})
    after = file.read_bytes()
    differing = [at for at in range(len(before)) if before[at] != after[at]]

    for end in range(differing[0], differing[-1], 7):
        file.write_bytes(after[:end] + before[end:])
        assert disk.active() == {"chat": "be_2"}
    file.write_bytes(after)
    assert disk.active() == {"chat": "be_torn"}


def test_what_has_not_changed_is_not_written(disk: Any) -> None:
    disk.activate({"chat": "be_chat_blue"})
    before = disk.STORE.file.stat().st_mtime_ns, disk.SETTINGS.stat().st_ino
    disk.activate({"chat": "be_chat_blue"})
    disk.put(disk.SETTINGS, disk.read(disk.SETTINGS))

    assert (disk.STORE.file.stat().st_mtime_ns, disk.SETTINGS.stat().st_ino) == before
