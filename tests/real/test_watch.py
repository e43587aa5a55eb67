"""The watch over a promoted release, on real nodes: an engine without a step, one with garbage, and one that slows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.service import GATEWAY, Service, wait_for

pytestmark = pytest.mark.fleet

QUICK = {"swap__stall_s": "8", "probe__startup__compile_stall_s": "8", "probe__smoke__timeout_s": "4"}
"""The stand-in compiles nothing: far below the 300 s of a real engine."""


def findings(service: Service) -> list[Any]:
    """What `sparkops status --json` shows first."""
    return list(service.cli("status", "--json").json["findings"])


@pytest.mark.matrix
def test_a_wedged_engine_is_named_with_its_evidence_and_restarted(stand_in: Service, nodes: RealFleet) -> None:
    engine = stand_in.anew("--node", GATEWAY, name="watched", **QUICK)
    node = nodes.node(engine.node)

    with stand_in.load(rate=0, streams=1, stream_tokens=4000, timeout_s=900) as load:
        wait_for(lambda: stand_in.status()["replicas"][0]["ranks"][0]["running"])
        node.exec("docker", "kill", "--signal=USR1", engine.name)
        (finding,) = wait_for(lambda: findings(stand_in))
        wait_for(lambda: [same for same in stand_in.running() if same.started_at > engine.started_at])
        load.stop()

    assert (finding["code"], finding["service"], finding["node"]) == ("STALLED", "stand-in", GATEWAY)
    assert finding["container"] == engine.name
    wait_for(lambda: not findings(stand_in))
    assert stand_in.cli("probe", "stand-in").code == 0
    events = stand_in.cli("history", "stand-in", "--json").json["events"]
    begun, *_ = [event for event in events if event["kind"] == "finding"]
    directory = begun["evidence"][0].split("sparkops-guard:")[1].split()[0]
    files = node.exec("docker", "exec", "sparkops-guard", "ls", directory).split()
    assert {"log.txt", "inspect.json", "metrics.txt", "question.json"} <= set(files)
    (restart,) = [event for event in events if event["kind"] == "restart"]
    assert "is restarted, since " in restart["text"]


@pytest.mark.matrix
def test_a_release_that_turns_to_garbage_gives_the_traffic_back_to_the_warm_one(stand_in: Service) -> None:
    kept = {**QUICK, "swap__keep_old_s": "1800"}
    sane = stand_in.anew("--node", GATEWAY, name="sane", **kept)

    with stand_in.load(rate=1, streams=0) as load:
        turns = stand_in.deploy(name="turns", ANSWERS="bangs", ANSWERS_AFTER_S="60", **kept)
        assert turns.code == 0, turns.err
        wait_for(lambda: [one.name for one in stand_in.running()] == [sane.name], patience_s=600)
        load.stop()

    assert set(load.report().failures) == {"short wrong"}, "each request is answered, also those with garbage"
    (end, *_) = [
        event for event in stand_in.cli("history", "stand-in", "--json").json["events"] if event["kind"] == "end"
    ][-1:]
    assert "answers garbage" in end["text"], end


FAST = {"EVERY_S": 5.0, "WARM_S": 10.0, "PAST": 8}
"""In place of 10 min, 15 min and 20 samples: what takes four hours and a half on a Spark takes three minutes here."""


@pytest.fixture
def hurried(stand_in: Service, tmp_path: Path) -> Iterator[Service]:
    """The stand-in, deployed by a copy of sparkops whose watch has the figures of FAST in place of its own."""
    copy = tmp_path / "copy"
    for name in ("sparkops", "templates", "recipes"):
        shutil.copytree(CHECKOUT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / "sparkops/serving/watch/pace.py"
    text = file.read_text()
    for name, value in FAST.items():
        text, changed = re.subn(rf"^{name} = .+$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert changed == 1
    file.write_text(text)
    yield replace(stand_in, cli=replace(stand_in.cli, env={"PYTHONPATH": str(copy)}, forked=False))
    stand_in.anew("--node", GATEWAY)  # with the guards of this version again


@pytest.mark.matrix
def test_a_release_that_became_slow_is_named_and_keeps_its_traffic(hurried: Service, stand_in: Service) -> None:
    engine = hurried.anew("--node", GATEWAY, name="slows", TOK_S="50", SLOW_AFTER_S="150", SLOW_TOK_S="29")

    (finding,) = wait_for(lambda: findings(stand_in), patience_s=600)

    assert (finding["code"], finding["service"], finding["node"]) == ("SLOW", "stand-in", GATEWAY)
    assert re.search(r"\b(?:28|29)[.\d]* .*\b(?:49|50)[.\d]* ", finding["detail"]), "both figures"
    (still,) = stand_in.running()
    assert (still.name, still.started_at) == (engine.name, engine.started_at)
    with stand_in.load(rate=5, streams=1, stream_tokens=50) as load:
        load.wait_for(10)
    assert load.report().failures == {}
    events = stand_in.cli("history", "stand-in", "--json").json["events"]
    (begun,) = [event for event in events if event["kind"] == "finding"]
    assert begun["evidence"]
