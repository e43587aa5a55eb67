"""What a swap may end in, whatever has happened to it; and how the clocks of guards are put on."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import requests

from sparkops.plan.journal import Journal, Phase
from sparkops.plan.lock import LEASE_S, Clock, lease_left
from tests.fleet.shell import FleetError, client
from tests.real.service import GATEWAY, JOURNALS, Service

PAST_LEASE_S = LEASE_S + 10
PATIENCE_S = 90.0
SEEN = """
import pathlib, sys, time
file, wanted = pathlib.Path(sys.argv[1]), f'"phase": "{sys.argv[2]}"'
while not (file.exists() and wanted in file.read_text()):
    time.sleep(0.003)
print("seen", flush=True)
"""
PUT_ON = """
import fcntl, json, os, pathlib, sys
directory, service, seconds = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
def earlier(said):
    if isinstance(said, dict):
        return {key: said[key] - seconds if key in ("renewed_s", "deadline_s", "due_s") else earlier(said[key])
                for key in said}
    return said
with (directory / f"{service}.lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    file, new = directory / f"{service}.json", directory / f"{service}.older"
    if file.exists():
        new.write_text(json.dumps(earlier(json.loads(file.read_text())), indent=1))
        os.replace(new, file)
"""


@contextmanager
def at(
    service: Service, phase: Phase, *argv: str, seen_on: str = GATEWAY, **changes: str
) -> Iterator[subprocess.Popen[str]]:
    """A deploy that has just written down on a node that it begins a phase."""
    node = service.nodes.node(seen_on)
    look = ("python3", "-c", SEEN, f"{JOURNALS}/{service.name}.json", phase.value)
    with (
        subprocess.Popen([client(), "exec", node.container, *look], stdout=subprocess.PIPE, text=True) as looking,
        service.cli.start(*service.argv(*argv, **changes)) as deploy,
    ):
        try:
            assert looking.stdout
            assert looking.stdout.readline() == "seen\n"
            yield deploy
        finally:
            looking.kill()
            deploy.kill()


def pass_by(service: Service, seconds: float) -> None:
    """Let so many seconds have gone by, as far as journals know: leases, deadlines and retirements are nearer."""
    for node in service.nodes.nodes:
        node.exec("python3", "-c", PUT_ON, JOURNALS, service.name, f"{seconds:g}")


def past_deadline_s(service: Service) -> float:
    """So many seconds that every deadline of the swap under way has come."""
    swap = service.journal().swap
    return max(PAST_LEASE_S, swap.deadline_s if swap else 0.0)


def good_end(service: Service, patience_s: float = PATIENCE_S) -> str:
    """Wait until all is as it may stay without a person. Returns the release that serves."""
    end = time.monotonic() + patience_s
    while wrong := [*problems(service)]:
        assert time.monotonic() < end, "\n".join(wrong)
        time.sleep(0.5)
    status = service.cli("status", "--json")
    assert (status.code, status.json["drift"]) == (0, []), status.out
    slot = service.traffic().active
    assert slot
    return slot.release


def problems(service: Service) -> Iterator[str]:
    """Everything that is not yet as it may stay."""
    try:
        journals = {node.name: service.journal(node.name) for node in service.nodes.nodes}
        boots = {node.name: node.exec("cat", "/run/boot_id").strip() for node in service.nodes.nodes}
        traffic, containers = service.traffic(), [*service.containers()]
    except FleetError as error:  # a node or its gateway is just coming back
        yield str(error)
        return
    for name, journal in journals.items():
        clock = Clock(time.clock_gettime(time.CLOCK_BOOTTIME), boots[name])
        yield from (f"{name}: {problem}" for problem in _unfinished(journal, clock))
    if traffic.file != traffic.runtime or traffic.active is None:
        yield f"the map's file says {traffic.file}, HAProxy {traffic.runtime}"
        return
    slot = traffic.active
    live = [each for each in containers if each.running and (each.release, each.slot) == (slot.release, slot.slot)]
    if len(live) != 1:
        yield f"{slot.release} ({slot.slot}) has the traffic, and runs {len(live)} times"
    active, retired = journals[GATEWAY].active, journals[GATEWAY].retirement
    if active is None or [active.container] != [each.name for each in live]:
        yield f"{slot.release} has the traffic, and the journal says {active.release if active else 'nobody'}"
    armed = [each.name for each in containers if each.restart_policy != "no"]
    if armed != [each.name for each in live]:
        yield f"these would start by themselves: {armed}"
    others = {each.name for each in containers if each.running} - {each.name for each in live}
    if others - ({retired.placed.container} if retired else set()):
        yield f"these run without traffic: {others}"
    yield from _answers(service, slot.release)


def _unfinished(journal: Journal, clock: Clock) -> Iterator[str]:
    if journal.swap:
        yield f"the swap is in phase {journal.swap.phase}"
    if journal.holder and lease_left(journal, clock):
        yield f"{journal.holder.owner} holds the lock"
    if journal.trouble:
        yield f"it needs a person: {journal.trouble}"


def _answers(service: Service, release: str) -> Iterator[str]:
    ask = {"model": service.name, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    with requests.Session() as asking:
        asking.trust_env = False
        try:
            reply = asking.post(f"{service.url}/v1/chat/completions", json=ask, timeout=10)
        except requests.RequestException as error:
            yield f"the service does not answer: {error}"
            return
    if reply.status_code != 200 or "Paris" not in reply.text:
        yield f"the service answers {reply.status_code}: {reply.text[:80]}"
    elif reply.headers["x-sparkops-release"] != release:
        yield f"{reply.headers['x-sparkops-release']} answers in place of {release}"
