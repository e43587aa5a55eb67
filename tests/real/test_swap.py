"""Blue-green on real nodes with the stand-in engine, while short requests and streams run."""

from __future__ import annotations

import re
import time

import pytest

from sparkops.facts import docker as docker_facts
from tests.load.load import Load
from tests.real.service import Service, nothing_failed, wait_for

pytestmark = pytest.mark.fleet

LOGGED = {"serve__args__disable-uvicorn-access-log": "false"}


def test_across_and_beside_lose_no_request_and_rollback_is_one_switch(service: Service) -> None:
    with service.load() as load:
        load.wait_for(50, 30)
        across = service.deploy("--node", "node-1", "--mode", "across", name="second", **LOGGED)
        beside = service.deploy("--node", "node-1", "--mode", "beside", name="third", **LOGGED)
        live = service.status()["live"]
        back = [service.cli("rollback", "stand-in", "--json") for _ in range(3)]
        looks = [service.cli("status", "--json") for _ in range(3)]
        slowness = service.slowness()
    assert (across.code, across.json["mode"], across.json["cut"]) == (0, "across", 0), across.err
    assert (beside.code, beside.json["mode"], beside.json["cut"]) == (0, "beside", 0), beside.err
    assert live["release"] == beside.json["release"]
    assert (back[0].code, back[0].json) == (0, {"release": across.json["release"], "mode": "one switch"})
    assert service.status()["live"]["release"] == back[2].json["release"] == across.json["release"]
    nothing_failed(load)
    assert {"first", "second", "third"} <= set(load.report().stand_ins)
    to_green_s = {mode.json["mode"]: switched_within(service, load, mode.json["green"]) for mode in (across, beside)}
    print(f"from the last probe to green's first answer: {to_green_s}; rollbacks: {[each.took_s for each in back]}")
    print(f"status: {[each.took_s for each in looks]}")
    print(f"the machine is {slowness:.1f} times slower than a calm one")
    # A delay that is built in shows in both swaps, a busy host in one.
    assert min(to_green_s.values()) <= 0.5 * slowness
    # Beside `status`, which imports, connects and starts programs as a rollback does: 0.84 times on a busy host.
    assert min(each.took_s for each in back) <= 1.5 * min(each.took_s for each in looks)


def switched_within(service: Service, load: Load, green: dict[str, str]) -> float:
    """Seconds from green's answer to the last check of the smoke suite to its first answer through the gateway."""
    log = service.nodes.node(green["node"]).exec("docker", "logs", "--timestamps", green["container"])
    answers = [docker_facts.timestamp(line.split()[0]) for line in log.splitlines() if line.endswith(" 200 OK")]
    first = min((record for record in load.records() if record.release == green["release"]), key=lambda it: it.start)
    epoch = time.time() - time.monotonic()  # all nodes are on this machine, so they share its clock
    return first.end + epoch - max(at for at in answers if at < first.start + epoch)


def test_the_same_release_again_is_nothing_to_do(service: Service) -> None:
    again = service.deploy(name="first")
    assert (again.code, again.json["mode"]) == (0, None)
    assert "nothing to do" in again.err


def test_in_place_is_refused_without_consent_and_otherwise_says_503(service: Service) -> None:
    refused = service.deploy("--node", "node-2", "--mode", "in-place", name="second")
    assert refused.code == 5
    assert "in-place on node-2: the service would be down while green starts" in refused.err
    with service.load() as load:
        load.wait_for(50, 30)
        done = service.deploy("--node", "node-2", "--mode", "in-place", "--allow-downtime", name="second", START_S="4")
        load.wait_for(load.report().good + 50, 30)
        slowness = service.slowness()
    report = load.report()
    assert (done.code, done.json["mode"]) == (0, "in-place"), done.err
    assert report.failures == {}, report.examples
    assert report.refusals > 0
    assert {"first", "second"} <= set(report.stand_ins)
    start_s, gap_s = sum(done.json["seconds"][phase] for phase in ("load", "verify")), report.longest_gap_s
    print(
        f"in place: nobody answered for {gap_s:.1f} s, of which {start_s:.1f} s are green's start and its smoke suite"
    )
    assert gap_s <= start_s + 3 * slowness


def test_in_place_brings_blue_back_by_itself(service: Service) -> None:
    blue = service.status()["live"]["release"]
    with service.load() as load:
        load.wait_for(50, 30)
        failed = service.deploy("--node", "node-2", "--mode", "in-place", "--allow-downtime", name="bad", CRASH_AT="50")
        load.wait_for(load.report().good + 50, 30)
    assert failed.code == 6, failed.err
    assert f"{blue} serves again" in failed.err
    assert service.status()["live"]["release"] == blue
    report = load.report()
    assert (report.failures, set(report.releases)) == ({}, {blue}), report.examples
    assert report.refusals > 0


def test_no_promote_waits_and_promote_goes_on(service: Service) -> None:
    waits = service.deploy("--node", "node-1", "--no-promote", name="second")
    assert waits.code == 0, waits.err
    assert (service.status()["swap"]["phase"], service.status()["live"]["release"]) == ("bake", waits.json["release"])
    done = service.cli("promote", "stand-in", "--json")
    assert (done.code, done.json["release"]) == (0, waits.json["release"]), done.err
    assert service.status()["swap"] is None


def test_two_operators_at_once_the_second_is_told_who_holds_it(service: Service) -> None:
    slow = service.argv("--node", "node-1", name="slow", START_S="12")
    with service.cli.start(*slow) as first:
        wait_for(lambda: service.status()["swap"])
        second = service.deploy("--node", "node-1", name="other")
        _, err = first.communicate(timeout=120)
    assert first.returncode == 0, err
    assert second.code == 4, second.err
    assert re.search(r"stand-in: locked by \S+ \(deploy, pid \d+\) for \d+ s, phase ", second.err)


def test_wait_reports_holder_phase_and_stage_and_then_deploys(service: Service) -> None:
    slow = service.argv("--node", "node-1", name="slow", START_S="12")
    with service.cli.start(*slow) as first:
        wait_for(lambda: service.status()["swap"])
        second = service.deploy("--node", "node-1", "--wait", "120", name="other")
        _, err = first.communicate(timeout=120)
    assert (first.returncode, second.code) == (0, 0), err + second.err
    assert second.json["release"] == service.status()["live"]["release"]
    waits = [line for line in second.err.splitlines() if "waiting for the lock of stand-in: held by " in line]
    assert any(re.search(r"\(deploy, pid \d+\) for .*, phase load: \w+", line) for line in waits), second.err
    phases = [found[1] for line in waits if (found := re.search(r", phase ([a-z ]+)", line))]
    assert len(set(phases)) > 1, waits


def test_hold_freezes_and_history_remembers(service: Service) -> None:
    assert service.cli("hold", "stand-in", "--message", "the auditors are here").code == 0
    refused = service.deploy("--node", "node-1", name="second")
    assert (refused.code, "on hold: the auditors are here" in refused.err) == (4, True)
    assert service.cli("unhold", "stand-in").code == 0
    events = service.cli("history", "stand-in", "--json").json["events"]
    assert [event["event"] for event in events] == ["deployed"]
