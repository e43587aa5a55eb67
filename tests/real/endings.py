"""What a swap may end in, whatever has happened to it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import requests

from sparkops.node.docker.facts import Container
from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.model import Phase
from tests.fleet.shell import FleetError, client
from tests.real.program import Ran
from tests.real.service import GATEWAY, PATIENCE_S, RELAY, Service, journal_in

Look = Callable[[], Any]
"""Returns the journal of the leader as it is now, as JSON."""


@contextmanager
def looking(service: Service) -> Iterator[Look]:
    """Looks at the leader's journal over one connection: each takes 5 ms of processor time."""
    question = json.dumps({"op": "state", "format": SCHEMA, "service": service.name}) + "\n"
    with subprocess.Popen(
        [client(), "exec", "-i", service.nodes.node(GATEWAY).container, *RELAY.split()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as relay:
        assert relay.stdin
        assert relay.stdout
        asked, answers = relay.stdin, relay.stdout

        def look() -> Any:
            asked.write(question)
            asked.flush()
            return json.loads(answers.readline())["ok"]["journal"]

        try:
            yield look
        finally:
            relay.kill()


@contextmanager
def at(service: Service, phase: Phase, *argv: str, **changes: str) -> Iterator[subprocess.Popen[str]]:
    """A deploy whose swap has just entered a phase, or passed it between two looks."""
    with looking(service) as look, service.cli.start(*service.argv(*argv, **changes)) as deploy:
        try:
            before = service.journal().starts
            for _ in awaited(look, phase, before):
                assert deploy.poll() is None, f"the deploy ended before {phase}: {deploy.communicate()[1]}"
            yield deploy
        finally:
            deploy.kill()


def awaited(look: Look, phase: Phase, before: int) -> Iterator[None]:
    """Wait until a swap that began after `before` starts is in a phase, or past it; yield after each look."""
    end_s = time.monotonic() + PATIENCE_S
    while not _reached(look(), phase, before):
        yield
        assert time.monotonic() < end_s, f"{phase} was not reached"
        time.sleep(0.05)


def _reached(journal: Any, phase: Phase, before: int) -> bool:
    """Whether a swap that began after `before` starts is in a phase, or past it."""
    if not journal or journal["starts"] <= before:
        return False
    return journal["swap"] is None or Phase(journal["swap"]["phase"]).order >= phase.order


def good_end(service: Service, patience_s: float = PATIENCE_S) -> str:
    """Wait until all is as it may stay without an operator. Returns the release that serves."""
    end_s = time.monotonic() + patience_s
    while wrong := [*problems(service)] or [*_returning(status := service.cli("status", "--json"))]:
        assert time.monotonic() < end_s, "\n".join(wrong)
        time.sleep(0.5)
    assert (status.code, status.json["drift"]) == (0, []), status.out
    slot = service.traffic().active
    assert slot
    return slot.release


def problems(service: Service) -> Iterator[str]:
    """Everything that is not yet as it may stay; of a service at work only that, since each look costs programs."""
    try:
        state = service.state()
        journal = journal_in(state, service.name)
        if unfinished := [*_unfinished(journal, state)]:
            yield from unfinished
            return
        traffic, containers = service.traffic(), [*service.containers()]
    except (FleetError, KeyError, ValueError) as error:  # a node, its guard or its gateway is just coming back
        yield str(error)
        return
    if traffic.file != traffic.runtime or traffic.active is None:
        yield f"the map's file says {traffic.file}, HAProxy {traffic.runtime}"
        return
    slot = traffic.active
    live = [
        container
        for container in containers
        if container.running and (container.release, container.slot) == (slot.release, slot.slot)
    ]
    active = [rank.container for rank in journal.active.ranks] if journal.active else []
    if sorted(active) != sorted(container.name for container in live):
        yield f"{slot.release} has the traffic and runs as {[container.name for container in live]}; active: {active}"
    yield from _boot_records(state, active, containers)
    warm = {rank.container for deployment in journal.deployments for rank in deployment.ranks}
    others = {container.name for container in containers if container.running} - warm
    if others:
        yield f"these run without traffic: {others}"
    yield from answers(service, slot.release)


def _returning(status: Ran) -> Iterator[str]:
    """Guards that the leader does not reach yet: a last report of a node counts for seconds after it has failed."""
    yield from (row["detail"] for row in status.json["drift"] if row["code"] == "GUARD_NOT_REACHED")


def _unfinished(journal: Journal, state: Any) -> Iterator[str]:
    if journal.swap and journal.swap.phase is not Phase.RETIRE:
        yield f"the swap is in phase {journal.swap.phase}"
    if state["needs_operator"]:
        yield f"it needs an operator: {state['needs_operator']}"
    if state["missing"]:
        yield f"guards that the leader does not reach: {state['missing']}"


def _boot_records(state: Any, active: list[str], containers: list[Container]) -> Iterator[str]:
    """After a reboot each node would start what is active there, and nothing else."""
    armed = sorted(report["armed"] for report in state["reports"].values() if report["armed"])
    if armed != sorted(active):
        yield f"boot records name {armed}, active is {active}"
    if policies := [container.name for container in containers if container.restart_policy != "no"]:
        yield f"Docker would start these: {policies}"


def answers(service: Service, release: str) -> Iterator[str]:
    """What is wrong with the answer of a service whose release should serve; nothing if it is right."""
    ask = {"model": service.name, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    with requests.Session() as asking:
        asking.trust_env = False
        try:
            reply = asking.post(f"{service.url}/v1/chat/completions", json=ask, timeout=60)
        except requests.RequestException as error:
            yield f"the service does not answer: {error}"
            return
    if reply.status_code != 200 or "Paris" not in reply.text:
        yield f"the service answers {reply.status_code}: {reply.text[:80]}"
    elif reply.headers["x-sparkops-release"] != release:
        yield f"{reply.headers['x-sparkops-release']} answers in place of {release}"
