"""`make full-memory`: another program takes the memory of the whole machine, beside a real vLLM. Writes a page.

Nothing else may run on the machine meanwhile. The kernel would end that program first: its oom_score_adj is 1000.
"""

from __future__ import annotations

import datetime
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparkops.guard.disk.notes import FINDING
from sparkops.guard.follow.free_memory import read_available_gib, read_total_gib
from sparkops.serving.memory.relief import floor_gib
from sparkops.units import GIB
from tests.fleet import entering
from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.lab.watched import WATCHED, tiny
from tests.real.service import Service, wait_for
from tests.real.test_watch import findings
from tests.real.weights import resident

PAGE = CHECKOUT / "docs/evidence/full-memory.md"
MODEL = "tiny-qwen3"
SHARE = 0.8
"""Of the floor: what the program leaves available."""
TAKE = """\
import select, sys, time
def left():
    with open("/proc/meminfo") as lines:
        kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return kib * 1024 - int(sys.argv[1])
with open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")
taken, PIECE = [], 16 << 20
while not select.select([sys.stdin], [], [], 0.05)[0]:
    while left() > PIECE:
        taken.append(b"\\1" * max(PIECE, left() // 4))
    while taken and left() < -PIECE:
        taken.pop()
"""
"""Takes memory until so many bytes are available, and keeps it so until its standard input ends."""


@dataclass(frozen=True)
class Row:
    """What was seen, and how many seconds after the node was below its floor; None where that says nothing."""

    what: str
    seen: str
    after_s: float | None = None


@contextmanager
def taken(node: FleetNode, floor: float) -> Iterator[float]:
    """Let a program on the node take memory; returns when less than the floor is available, with the time of that."""
    words = (*entering.prefix(node.container), "python3", "-c", TAKE, str(int(SHARE * floor * GIB)))
    with subprocess.Popen(words, stdin=subprocess.PIPE) as program:
        try:
            wait_for(lambda: read_available_gib() < floor, pause_s=0.05)
            yield time.monotonic()
        finally:
            assert program.stdin
            program.stdin.close()


def main() -> int:
    """Return 1 if an engine was not named, not ended or not started again, or if a request failed."""
    nodes, floor = RealFleet.up(2), floor_gib(1.0, read_total_gib())
    with tempfile.TemporaryDirectory(prefix="sparkops-full-memory-") as home:
        service = tiny(nodes, Path(home))
        try:
            rows = [*_warned(service, floor), *_killed(service, floor)]
        finally:
            service.sweep()
    PAGE.write_text("\n".join(_page(rows, floor)) + "\n")
    return 0


def _warned(service: Service, floor: float) -> Iterator[Row]:
    engine = service.anew("--node", WATCHED)
    node = service.nodes.node(WATCHED)
    with service.load(rate=2, streams=2) as load:
        load.wait_for(50)
        cached = resident(node, MODEL)
        with taken(node, floor) as began_s:
            (finding,) = wait_for(lambda: findings(service))
            named_s = time.monotonic() - began_s
            available, dropped = read_available_gib(), resident(node, MODEL)
            load.wait_for(load.report().good + 100)
        wait_for(lambda: not findings(service))
        ended_s = time.monotonic() - began_s
    report = load.report()
    sent, failed = report.shorts + report.streams, sum(report.failures.values()) + report.refusals
    assert (finding["code"], finding["container"]) == ("LOW_MEMORY", engine.name)
    assert [same.started_at for same in service.running()] == [engine.started_at]
    assert (failed, bool(cached), dropped) == (0, True, 0), (report.examples, cached, dropped)
    first = next(event for event in service.events(WATCHED) if event["kind"] == FINDING)
    assert first["evidence"]
    yield Row("available", f"{available:.2f} GiB, floor {floor:.2f} GiB")
    yield Row("`status`, over SSH", f"{finding['code']}: {finding['detail']}", named_s)
    yield Row("page cache of the model's files", f"{cached} bytes before, {dropped} then")
    yield Row("requests and streams meanwhile", f"{sent}, {failed} failed; the engine was not restarted")
    yield Row("memory free again", "the finding has ended", ended_s)


def _killed(service: Service, floor: float) -> Iterator[Row]:
    engine = service.anew("--node", WATCHED, memory__at_floor="kill")
    node = service.nodes.node(WATCHED)
    cached = resident(node, MODEL)
    with taken(node, floor) as began_s:
        wait_for(lambda: not service.running())
        killed_s = time.monotonic() - began_s
        wait_for(lambda: "waiting for memory" in str(service.state()["progress"]))
        row = service.status()
    (again,) = wait_for(service.running)
    wait_for(lambda: service.status()["state"] == "healthy")
    healthy_s = time.monotonic() - began_s
    assert (again.name, again.started_at > engine.started_at) == (engine.name, True)
    assert service.cli("probe", service.name).code == 0
    log = node.exec("sh", "-c", "docker logs sparkops-guard 2>&1").splitlines()
    *_, killed = [line for line in log if f"{engine.name} killed (promoted, and started last)" in line]
    dropped = max(index for index, line in enumerate(log[: log.index(killed)]) if "page cache dropped: " in line)
    yield Row("page cache of the model's files", f"{cached} bytes in it, then `{log[dropped].partition(': ')[2]}`")
    yield Row("log of the guard", killed, killed_s)
    yield Row("`status` then", f"{row['state']}")
    yield Row("memory free again", "started again, healthy, `probe` passed", healthy_s)


def _page(rows: list[Row], floor: float) -> Iterator[str]:
    day, machine = f"{datetime.datetime.now(tz=datetime.UTC):%d %B %Y}", platform.machine()
    yield "# A machine without memory"
    yield ""
    yield f"Written by `make full-memory` on {day}, on two nodes of a test fleet on one {machine} machine with"
    yield f"{read_total_gib():.1f} GiB: vLLM 0.32.0 for CPUs and a model of 0.6 MB. Another program on the node takes"
    yield f"memory until {SHARE * floor:.2f} GiB are available, and gives it back in the end. What is read are the"
    yield "kernel's own figures. Seconds count from when less than the floor was available."
    yield ""
    yield "Not shown: a GB10, whose driver takes memory too and which may hang; a model that fills the page cache."
    yield ""
    yield "| what | seen | after |"
    yield "| --- | --- | --- |"
    for row in rows:
        yield f"| {row.what} | {row.seen} | {'' if row.after_s is None else f'{row.after_s:.1f} s'} |"


if __name__ == "__main__":
    sys.exit(main())
