"""Blue-green on real nodes with the stand-in engine, while short requests and streams run."""

from __future__ import annotations

import json
import re
import signal
import time
from contextlib import ExitStack

import pytest
import requests

from sparkops.config import inventory
from sparkops.operator.fleet.connected import connect
from sparkops.operator.fleet.guards import leases
from tests.real.service import GATEWAY, PATIENCE_S, Service, enough, nothing_failed, unused, wait_for

pytestmark = pytest.mark.fleet

QUESTION = [{"role": "user", "content": "Talk."}]
WARM = {"swap__keep_old_s": "600"}


def test_across_and_beside_lose_no_request_and_a_rollback_needs_no_load(service: Service) -> None:
    with service.load() as load:
        load.wait_for(50)
        across = service.deploy("--node", "node-1", "--mode", "across", name="second", **WARM)
        beside = service.deploy("--node", "node-1", "--mode", "beside", name="third", **WARM)
        live = service.status()["live"]
        back = service.cli("rollback", "stand-in", "--json")
        wait_for(lambda: enough(load))
    assert (across.code, across.json["mode"], across.json["cut"]) == (0, "across", 0), across.err
    assert (beside.code, beside.json["mode"], beside.json["cut"]) == (0, "beside", 0), beside.err
    assert live["release"] == beside.json["release"]
    assert (back.code, back.json["release"], back.json["mode"]) == (0, across.json["release"], "beside"), back.err
    assert service.status()["live"]["release"] == across.json["release"]
    nothing_failed(load)
    assert {"first", "second", "third"} <= set(load.report().stand_ins)
    for ran in (across, beside):
        phases = list(ran.json["seconds"])
        assert phases.index("switch") == phases.index("verify") + 1, phases


def test_in_place_is_refused_without_consent_and_otherwise_requests_wait(service: Service) -> None:
    refused = service.deploy("--node", "node-2", "--mode", "in-place", name="second")
    assert refused.code == 5
    assert "in-place on node-2: the service would be down while the new release starts" in refused.err
    with service.load(rate=5, timeout_s=600.0) as load:  # what waits are connections of one address, which has 256
        load.wait_for(50)
        ran = service.deploy("--node", "node-2", "--mode", "in-place", "--allow-downtime", name="second", START_S="4")
        load.wait_for(load.report().good + 50)
    report = load.report()
    assert (ran.code, ran.json["mode"]) == (0, "in-place"), ran.err
    assert (report.failures, report.refusals) == ({}, 0), report.examples
    assert {"first", "second"} <= set(report.stand_ins)
    (new,) = service.running()
    epoch = time.time() - time.monotonic()  # all nodes are on this machine, so they share its clock
    waited = [
        record for record in load.records() if record.start + epoch < new.started_at and record.stand_in == "second"
    ]
    assert {record.kind for record in waited} == {"short", "stream"}


def test_of_two_deploys_the_second_is_refused_before_its_checks_and_may_wait(anywhere: Service) -> None:
    argv = anywhere.argv("--node", anywhere.away, name=unused())
    with connect(inventory.load(anywhere.cli.inventory), [GATEWAY]) as connected, ExitStack() as preceding:
        first = leases.of_deploy(connected.member(GATEWAY), "stand-in", "stand-in: deploy of stand-in-1", print)
        preceding.enter_context(first)
        refused = anywhere.cli(*argv)
        with anywhere.cli.start(*argv, "--wait", "300") as waiting:
            assert waiting.stderr
            waits = next(line for line in waiting.stderr if "waiting" in line)
            preceding.close()
            out, err = waiting.communicate(timeout=PATIENCE_S)

    assert refused.code == 4, refused.err
    problem = f"{GATEWAY}: stand-in: deploy of stand-in-1 by {leases.operator()} is in progress"
    assert refused.err.splitlines() == [f"sparkops: {problem}", "  next: `--wait 10m` retries."]
    assert problem in waits
    assert (waiting.returncode, json.loads(out)["result"]) == (0, "done"), err


@pytest.mark.matrix
def test_in_place_returns_to_the_old_release_by_itself(service: Service) -> None:
    old = service.status()["live"]["release"]
    with service.load(rate=5, timeout_s=600.0) as load:
        load.wait_for(50)
        failed = service.deploy("--node", "node-2", "--mode", "in-place", "--allow-downtime", name="bad", CRASH_AT="50")
        load.wait_for(load.report().good + 50)
    assert failed.code == 6, failed.err
    assert f"{old} serves" in failed.err
    assert service.status()["live"]["release"] == old
    report = load.report()
    assert (report.failures, report.refusals, set(report.releases)) == ({}, 0, {old}), report.examples


@pytest.mark.matrix
def test_no_promote_waits_and_promote_continues(anywhere: Service) -> None:
    waits = anywhere.deploy("--node", anywhere.away, "--no-promote", name=unused())
    assert waits.code == 0, waits.err
    swap = anywhere.status()["swap"]
    assert (swap["phase"], swap["waits_for_promote"]) == ("bake", True)
    assert anywhere.status()["live"]["release"] == waits.json["release"]
    promoted = anywhere.cli("promote", "stand-in", "--json")
    assert (promoted.code, promoted.json["release"]) == (0, waits.json["release"]), promoted.err
    assert anywhere.status()["swap"] is None


@pytest.mark.matrix
def test_a_second_operator_is_told_what_is_in_progress_and_may_wait(anywhere: Service) -> None:
    away = anywhere.away
    slow = anywhere.argv("--node", away, name=unused(), START_S="20")
    with anywhere.cli.start(*slow) as first:
        wait_for(lambda: anywhere.status()["swap"])
        second = anywhere.deploy("--node", away, name="other")
        third = anywhere.deploy("--node", away, "--wait", "300", name="other")
        _, err = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 0, err
    assert second.code == 4, second.err
    assert re.search(r"a swap to stand-in-\w+ is in phase '[a-z ]+'", second.err)
    assert "next: sparkops status stand-in --follow" in second.err
    assert third.code == 0, third.err
    assert third.json["release"] == anywhere.status()["live"]["release"]
    assert "waiting: " in third.err


@pytest.mark.matrix
def test_a_deploy_waits_for_a_failed_release_that_takes_long_to_stop(anywhere: Service) -> None:
    away, other = anywhere.away, unused()
    lasting = {"ANSWERS": "nonsense", "IGNORE_TERM": "1", "serve__stop_grace_s": "20"}
    failed = anywhere.deploy("--node", away, name=unused(), **lasting)
    busy = anywhere.deploy("--node", away, name=other)
    waited = anywhere.deploy("--node", away, "--wait", "300", name=other)
    assert (failed.code, busy.code, waited.code) == (1, 4, 0), (failed.err, busy.err, waited.err)
    stopping = rf"{away}: stand-in-\w+-(blue|green)-r0 is being stopped"
    assert re.search(stopping, busy.err)
    assert re.search(f"waiting: {stopping}", waited.err)


def test_ctrl_c_stops_the_following_and_any_machine_follows_or_cancels(anywhere: Service) -> None:
    old = anywhere.status()["live"]["release"]
    slow = anywhere.argv("--node", anywhere.away, name=unused(), HANG_AT="40")
    with anywhere.cli.start(*slow) as first:
        wait_for(lambda: anywhere.status()["swap"])
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 130, err
    assert "sparkops status stand-in --follow" in err
    assert "sparkops rollback stand-in" in err
    assert anywhere.status()["swap"]["phase"] != "bake"
    cancelled = anywhere.cli("rollback", "stand-in")
    assert cancelled.code == 0, cancelled.err
    assert (anywhere.status()["live"]["release"], anywhere.status()["swap"]) == (old, None)


def test_a_detached_deploy_is_followed_from_elsewhere(anywhere: Service) -> None:
    """A stream that the old release still answers keeps the swap in its drain until it is followed."""
    body = {"model": "stand-in", "stream": True, "ignore_eos": True, "max_tokens": 20_000, "messages": QUESTION}
    with requests.post(f"{anywhere.url}/v1/chat/completions", json=body, stream=True, timeout=60) as stream:
        assert stream.status_code == 200, stream.text
        detached = anywhere.deploy("--node", anywhere.away, "--detach", name=unused())
        assert (detached.code, detached.json["result"]) == (0, "accepted"), detached.err
        with anywhere.cli.start("status", "stand-in", "--follow", "--json") as follow:
            assert follow.stderr
            line = follow.stderr.readline()
            assert "swap to stand-in-" in line, line
            stream.close()
            out, err = follow.communicate(timeout=PATIENCE_S)
    followed = json.loads(out)
    assert (follow.returncode, followed["result"], followed["mode"]) == (0, "done", "across"), err
    assert anywhere.status()["live"]["release"] == followed["release"]
    wait_for(lambda: {container.release for container in anywhere.running()} == {followed["release"]})


@pytest.mark.matrix
def test_hold_blocks_and_history_remembers(anywhere: Service) -> None:
    assert anywhere.cli("hold", "stand-in", "--message", "the auditors are here").code == 0
    refused = anywhere.deploy("--node", anywhere.away, name=unused())
    assert (refused.code, "on hold: the auditors are here" in refused.err) == (4, True)
    assert anywhere.cli("hold", "stand-in", "--off").code == 0
    events = anywhere.cli("history", "stand-in", "--json").json["events"]
    begun, over = (event["text"] for event in events if "hold" in event["text"] and event["kind"] == "note")
    assert re.fullmatch(r"on hold: the auditors are here, by \S+@\S+ since [-\d]+ [:\d]+ UTC", begun)
    assert over == "hold released"


def test_a_stop_ends_the_deploy_of_another_only_by_force_and_a_restart_serves_again(anywhere: Service) -> None:
    old = anywhere.status()["live"]["release"]
    slow = anywhere.argv("--node", anywhere.away, name=unused(), HANG_AT="40")
    with anywhere.cli.start(*slow) as deploying:
        wait_for(lambda: anywhere.status()["swap"])
        refused = anywhere.cli("stop", "stand-in")
        forced = anywhere.cli("stop", "stand-in", "--force", "--json")
        out, err = deploying.communicate(timeout=PATIENCE_S)
    assert (refused.code, "next: sparkops stop stand-in --force" in refused.err) == (4, True), refused.err
    assert re.search(r"a swap to stand-in-\w+ is in phase '[a-z ]+', deploy by \S+@\S+", refused.err)
    assert (forced.code, forced.json["result"]) == (0, "stopped"), forced.err
    assert (deploying.returncode, json.loads(out)["result"]) == (1, "stopped"), err
    assert re.search(r"stopped by \S+@\S+ while it started; no release serves", err)

    reply = requests.post(f"{anywhere.url}/v1/chat/completions", json={"model": "stand-in"}, timeout=60)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "stopped")
    assert "Retry-After" not in reply.headers

    again = anywhere.cli("restart", "stand-in", "--json")
    assert (again.code, again.json["release"]) == (0, old), again.err
    intents = [event for event in anywhere.cli("history", "stand-in", "--json").json["events"] if event.get("verb")]
    assert [event["verb"] for event in intents][-3:] == ["deploy", "stop", "restart"]


def test_a_rollback_names_its_release_first_and_goes_forward_only_by_name(anywhere: Service) -> None:
    old = anywhere.status()["live"]["release"]
    bad = anywhere.deploy("--node", anywhere.away, name=unused(), **WARM).json["release"]
    known = anywhere.cli("history").out
    planned = anywhere.cli("rollback", "stand-in", "--dry-run")
    back = anywhere.cli("rollback", "stand-in", "--json")
    twice = anywhere.cli("rollback", "stand-in")

    assert f"PROMOTED  stand-in: {bad} is promoted" in known, "while the old release is warm"
    assert f"returning to {old} on " in planned.out
    assert (back.code, back.json["release"]) == (0, old), back.err
    assert (twice.code, f"next: sparkops rollback stand-in --to {bad}" in twice.err) == (5, True), twice.err
    assert anywhere.status()["live"]["release"] == old


@pytest.mark.matrix
def test_a_stop_drains_and_a_deploy_brings_the_service_back(service: Service) -> None:
    with service.load(rate=20, streams=4) as load:
        load.wait_for(20)
        stopped = service.cli("stop", "stand-in")
    assert stopped.code == 0, stopped.err
    assert load.report().failures == {}
    assert service.running() == []
    ran = service.deploy("--node", "node-2", name="first")
    assert (ran.code, ran.json["mode"]) == (0, "first"), ran.err
