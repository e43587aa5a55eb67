"""`make watched`: an hour of the watch on a real vLLM at changing load. It must find nothing. Writes a page."""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sparkops.config import inventory
from sparkops.guard.disk.notes import FINDING
from tests import checkpoints
from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import RECIPE, Cli
from tests.real.service import GATEWAY, Service, write_inventory

PAGE = CHECKOUT / "docs/evidence/watch.md"
WATCHED = "node-2"
LOOK_S = 30.0
ANSWERED = "vllm:request_success_total"
METRICS = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/metrics', timeout=60).read().decode())"


@dataclass(frozen=True)
class Phase:
    """A load for some minutes: `rate` short requests a second, and streams of `tokens` one after the other."""

    name: str
    minutes: float
    rate: float = 0.0
    streams: int = 0
    tokens: int = 100
    repeat: int = 1
    """How often it is sent, each time followed by a rest as long."""


PHASES = (
    Phase("idle", 10),
    Phase("a few requests", 10, rate=1, streams=1),
    Phase("more than the engine answers at once", 8, rate=6, streams=8),
    Phase("idle again", 5),
    Phase("streams only", 8, streams=4, tokens=900),
    Phase("on and off", 1, rate=3, streams=4, repeat=5),
    Phase("idle at the end", 10),
)
"""61 minutes."""


@dataclass(frozen=True)
class Passed:
    """A phase as it went. `asked` are the requests that the engine answered beside those of the load: sparkops asks."""

    phase: Phase
    sent: int
    failed: int
    asked: int
    findings: tuple[str, ...]


def main() -> int:
    """Return 1 if anything was found, if a request failed, or if the watch asked nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the minutes of each phase, to try this program")
    scale = parser.parse_args().scale
    nodes = RealFleet.up(2)
    with tempfile.TemporaryDirectory(prefix="sparkops-watched-") as home:
        service = tiny(nodes, Path(home))
        try:
            service.sweep()
            first = service.deploy("--node", WATCHED)
            assert first.code == 0, first.err
            passed = [_pass(service, phase, scale) for phase in PHASES]
            events = [event for node in nodes.nodes for event in service.events(node.name)]
            noted = sorted({event["text"] for event in events if event["kind"] == FINDING})
        finally:
            service.sweep()
    if scale == 1:
        PAGE.write_text("\n".join(_page(passed, noted)) + "\n")
    print(*noted, sep="\n")
    asked = sum(row.asked for row in passed)
    return 1 if noted or not asked or any(row.failed or row.findings for row in passed) else 0


def tiny(nodes: RealFleet, home: Path) -> Service:
    """Return the tiny model on vLLM behind a gateway, with its image and its model on both nodes."""
    cli = Cli(write_inventory(nodes, home, lambda data: data.update(gateway={"node": GATEWAY})), home)
    built = cli("build", RECIPE, "--once", "--json")
    assert built.code == 0, built.err
    fleet = inventory.load(cli.inventory)
    checkpoints.provide(fleet, built.json["tag"], nodes.home / "checkpoints", "tiny-qwen3")
    return Service(cli, nodes, str(RECIPE), "tiny", 8000, {"swap.bake_s": "5", "probe.passes": "1"})


def _pass(service: Service, phase: Phase, scale: float) -> Passed:
    """Send the load of a phase, and look for findings meanwhile."""
    before, began_s = _answered(service), time.monotonic()
    sent, failed, findings = 0, 0, set[str]()
    loads = phase.rate or phase.streams
    for _ in range(phase.repeat):
        if loads:
            load = service.load(
                rate=phase.rate,
                streams=phase.streams,
                stream_tokens=phase.tokens,
                seconds=7200,
                timeout_s=600,
                drain_s=600,
            )
            with load:
                findings |= _look(service, phase.minutes * 60 * scale)
            report = load.report()
            sent += report.shorts + report.streams
            failed += sum(report.failures.values()) + report.refusals
        if phase.repeat > 1 or not loads:
            findings |= _look(service, phase.minutes * 60 * scale)
    asked = _answered(service) - before - sent
    took_s = time.monotonic() - began_s
    print(f"{took_s:6.0f} s  {phase.name}: {sent} requests, {failed} failed, {asked} of sparkops", flush=True)
    print(*sorted(findings), sep="\n", flush=True)
    return Passed(phase, sent, failed, asked, tuple(sorted(findings)))


def _look(service: Service, seconds: float) -> set[str]:
    """Look for findings so long, every half a minute."""
    findings, end_s = set[str](), time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        time.sleep(min(LOOK_S, left_s))
        rows = service.cli("status", "--json").json["findings"]
        findings |= {f"{row['code']}: {row['detail']}" for row in rows}
    return findings


def _answered(service: Service) -> int:
    """Return how many requests the engine has answered since its start."""
    (engine,) = service.running()
    text = service.nodes.node(engine.node).exec("python3", "-c", METRICS.format(port=engine.port))
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(ANSWERED)))


def _page(passed: list[Passed], noted: list[str]) -> Iterator[str]:
    day, machine = f"{datetime.datetime.now(tz=datetime.UTC):%d %B %Y}", platform.machine()
    yield "# An hour of the watch on vLLM"
    yield ""
    yield f"Written by `make watched` on {day}, on two nodes of a test fleet on one {machine} machine: vLLM 0.32.0 for"
    yield "CPUs, a model of 0.6 MB and the shipped thresholds. Findings are those of `status` every 30 s and of the"
    yield "events. Of sparkops are a completion of one token every 10 s, which tests the way through the gateway, and"
    yield "light questions and samples of the speed, by which the watch looks."
    yield ""
    yield "Not shown: speed is compared after 20 samples, which take four hours; clocks need a GPU."
    yield ""
    yield "| load | minutes | requests and streams | failed | of sparkops | findings |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in passed:
        phase = row.phase
        minutes = f"{phase.repeat} times {phase.minutes:g}, and as long without" if phase.repeat > 1 else phase.minutes
        cells = (phase.name, minutes, row.sent, row.failed, row.asked, "; ".join(row.findings) or "none")
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    yield f"Findings in the events: {'; '.join(noted) or 'none'}."


if __name__ == "__main__":
    sys.exit(main())
