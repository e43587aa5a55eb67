"""Blue-green on real nodes with the stand-in engine, while short requests and streams run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.real.service import Service, nothing_failed, wait_for

pytestmark = pytest.mark.fleet


def test_across_and_beside_lose_no_request_and_rollback_is_one_switch(service: Service) -> None:
    with service.load() as load:
        load.wait_for(50, 30)
        across = service.deploy("--node", "node-1", "--mode", "across", name="second")
        beside = service.deploy("--node", "node-1", "--mode", "beside", name="third")
        live = service.status()["live"]
        back = service.cli("rollback", "stand-in", "--json")
    assert (across.code, across.json["mode"], across.json["cut"]) == (0, "across", 0), across.err
    assert (beside.code, beside.json["mode"], beside.json["cut"]) == (0, "beside", 0), beside.err
    assert live["release"] == beside.json["release"]
    assert (back.code, back.json) == (0, {"release": across.json["release"], "mode": "one switch"})
    assert service.status()["live"]["release"] == across.json["release"]
    nothing_failed(load)
    assert {"first", "second", "third"} <= set(load.report().stand_ins)


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
        done = service.deploy("--node", "node-2", "--mode", "in-place", "--allow-downtime", name="second")
        load.wait_for(50, 30)
    report = load.report()
    assert (done.code, done.json["mode"]) == (0, "in-place"), done.err
    assert report.failures == {}, report.examples
    assert report.refusals > 0
    assert {"first", "second"} <= set(report.stand_ins)


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"CRASH_AT": "80"}, "RuntimeError: the stand-in crashes at 80 % of the weights"),
        ({"HANG_AT": "40", "probe__startup__stall_s": "4"}, "nothing has moved for 4 s while loading weights 40 %"),
        ({"FATAL": "CUDA out of memory"}, "CUDA out of memory"),
        ({"HEALTH_ONLY": "1", "probe__smoke__timeout_s": "3", "probe__smoke__warm_up__timeout_s": "3"}, "warm_up"),
        ({"ANSWERS": "nonsense"}, "questions"),
        ({"ANSWERS": "bangs"}, "questions"),
        ({"ANSWERS": "wrong_name"}, "models"),
        ({"ANSWERS": "raw_tools"}, "tools"),
        ({"TOK_S": "50", "probe__smoke__speed__enabled": "true", "expected__tok_s": "500"}, "speed"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_bad_green_is_refused_with_its_own_reason_and_blue_never_stops(
    service: Service, knobs: dict[str, str], reason: str
) -> None:
    with service.untouched():
        failed = service.deploy("--node", "node-1", name="bad", **knobs)
    assert failed.code == 1, failed.err
    assert reason in failed.err
    status = service.status()
    assert (status["state"], status["swap"]) == ("healthy", None)
    saved = Path(next(line.split("saved: ")[1] for line in failed.err.splitlines() if "saved: " in line))
    assert "vllm" in (saved / "log.txt").read_text()
    assert json.loads((saved / "inspect.json").read_text())["State"]["Running"] in (True, False)


def test_a_green_that_dies_after_the_switch_is_flipped_back(service: Service) -> None:
    failed = service.deploy("--node", "node-1", name="dies", DIE_AFTER_S="6", swap__bake_s="20")
    assert failed.code == 1, failed.err
    assert "died with the traffic" in failed.err or "broke off" in failed.err or "answers wrongly" in failed.err
    assert service.status()["live"]["release"].startswith("stand-in-")
    assert service.cli("status", "--json").json["services"][-1]["state"] in ("healthy", "stopped")
    ran = [rank for each in service.status()["replicas"] for rank in each["ranks"] if rank["state"] == "running"]
    assert [rank["node"] for rank in ran] == ["node-2"]


def test_in_place_brings_blue_back_by_itself(service: Service) -> None:
    blue = service.status()["live"]["release"]
    failed = service.deploy("--node", "node-2", "--mode", "in-place", "--allow-downtime", name="bad", CRASH_AT="50")
    assert failed.code == 6, failed.err
    assert f"{blue} serves again" in failed.err
    assert service.status()["live"]["release"] == blue


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
    assert second.code in (4, 5)
    assert "holds stand-in in phase" in second.err or "stopped in phase" in second.err


def test_hold_freezes_and_history_remembers(service: Service) -> None:
    assert service.cli("hold", "stand-in", "--message", "the auditors are here").code == 0
    refused = service.deploy("--node", "node-1", name="second")
    assert (refused.code, "on hold: the auditors are here" in refused.err) == (4, True)
    assert service.cli("unhold", "stand-in").code == 0
    events = service.cli("history", "stand-in", "--json").json["events"]
    assert [event["event"] for event in events] == ["deployed"]
