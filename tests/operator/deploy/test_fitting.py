"""A recipe compared with a node: its checkpoint or the lock is read, and a plan prints the same."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from sparkops.config.lock import Described, Lock, Parent, fingerprint
from sparkops.config.recipe import Recipe
from sparkops.engines.start_log import ReportedMemory, Stage
from sparkops.errors import NotReady, PlanRefused, SparkopsError, UsageError
from sparkops.node.docker_api import Engine
from sparkops.node.member import Member
from sparkops.operator.build.hub.headers import HubHeaders
from sparkops.operator.cli.deploy import section
from sparkops.operator.deploy.fitting import fits, measured
from sparkops.operator.deploy.memory.fit import Fit, Measured
from sparkops.operator.fleet.connected import Connected
from sparkops.serving.startup.estimate import Started, settings
from tests.examples import CUDA, recipe
from tests.hub_server import COMMIT, hub
from tests.operator.build.weights.places import connected, member
from tests.operator.deploy.memory.configs import TINY
from tests.safetensors import checkpoint, tensor

SERVE: dict[str, dict[str, Any]] = {"args": {"max-model-len": 1024}, "env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}
WANTED = recipe(serve=SERVE)


class NoContainers:
    """A Docker Engine without containers of sparkops."""

    def containers(self, **_: str) -> list[dict[str, Any]]:
        return []

    def container(self, name: str) -> None:
        """There is none of that name."""


def on(root: Path) -> Connected:
    """This machine as the node n1."""
    node: Member = replace(member("n1", root), engine=cast("Engine", NoContainers()))
    return connected(node)


def give_model(root: Path, config: dict[str, Any] = TINY) -> None:
    shards = {"model.safetensors": {"model.layers.0.mlp.up_proj.weight": tensor("BF16", [512, 1024])}}
    checkpoint(root / "q", shards, config)


def outcome(root: Path, candidate: Recipe = WANTED) -> Fit | SparkopsError:
    [fit] = fits(on(root), candidate).values()
    return fit


def locked() -> Recipe:
    """The recipe held to a lock that describes its model."""
    described = Described(model="org/q", config=TINY, tensors={"w": 1 << 30}, largest_bytes=1 << 30)
    parent = Parent(name=WANTED.image.parent)
    lock = Lock(made_for=fingerprint(WANTED.image), machine="x86_64", parent=parent, whole=True, checkpoint=described)
    return WANTED.with_lock(lock)


def test_the_checkpoint_on_the_node_is_compared_with_its_memory(tmp_path: Path) -> None:
    give_model(tmp_path)
    fit = outcome(tmp_path)

    assert isinstance(fit, Fit)
    assert (fit.origin, fit.weights_gib) == (f"n1: {tmp_path}/q", 2**20 / 2**30)
    assert (fit.requests, fit.problems) == (2048.0, ())
    assert fit.room.total_gib > 1


def test_a_lock_stands_in_for_a_model_that_is_not_there(tmp_path: Path) -> None:
    fit = outcome(tmp_path, locked())

    assert isinstance(fit, Fit)
    assert (fit.origin, fit.weights_gib) == ("q.lock", 1.0)


def test_the_node_counts_more_than_the_lock(tmp_path: Path) -> None:
    give_model(tmp_path)
    fit = outcome(tmp_path, locked())

    assert isinstance(fit, Fit)
    assert fit.weights_gib < 1.0


def test_with_neither_it_is_refused_with_both_ways_out(tmp_path: Path) -> None:
    refused = outcome(tmp_path)

    assert isinstance(refused, NotReady)
    assert str(refused) == (f"n1: memory unknown: no config.json in {tmp_path}/q, no description of org/q in a lock")
    assert "sparkops models pull q --node n1" in refused.next_step
    assert refused.next_step.endswith("or, if a node has it: sparkops recipe lock q --node NODE")


@pytest.mark.local
def test_a_model_that_only_its_hub_has_is_described_there(tmp_path: Path) -> None:
    (tmp_path / "at-hub").mkdir()
    give_model(tmp_path / "at-hub")
    with hub({"org/q": tmp_path / "at-hub/q"}) as served:
        [fit] = fits(on(tmp_path / "models"), WANTED, HubHeaders(endpoint=served.url)).values()

    assert isinstance(fit, Fit)
    assert (fit.origin, fit.weights_gib) == (f"org/q at the hub, {COMMIT[:12]}", 2**20 / 2**30)


@pytest.mark.local
def test_a_hub_that_cannot_be_reached_leaves_the_memory_unknown(tmp_path: Path) -> None:
    [refused] = fits(on(tmp_path), WANTED, HubHeaders(endpoint="http://127.0.0.1:9")).values()

    assert isinstance(refused, NotReady)
    assert "memory unknown: no config.json in " in str(refused)
    assert "; org/q: the hub cannot be reached from this node" in str(refused)
    assert refused.next_step.splitlines()[0] == "Use a node with internet (--node), or a mirror (--endpoint)."


@pytest.mark.local
def test_the_hub_is_not_asked_where_the_node_or_the_lock_knows(tmp_path: Path) -> None:
    with hub({}) as served:
        [fit] = fits(on(tmp_path), locked(), HubHeaders(endpoint=served.url)).values()

    assert isinstance(fit, Fit)
    assert served.requests == []


def test_a_value_that_no_engine_accepts_is_wrong_input_and_ends_a_plan(tmp_path: Path) -> None:
    give_model(tmp_path)
    wrong = recipe(serve={**SERVE, "args": {**SERVE["args"], "max-num-seqs": "many"}})

    with pytest.raises(UsageError, match=r"q: serve\.args\.max-num-seqs: expected a number above 0, got 'many'"):
        section(on(tmp_path), wrong, ["n1"])


def test_a_window_that_the_engine_chooses_is_only_unknown(tmp_path: Path) -> None:
    give_model(tmp_path)
    chosen = recipe(serve={**SERVE, "args": {**SERVE["args"], "max-model-len": "auto"}})

    assert "memory unknown: serve.args.max-model-len" in section(on(tmp_path), chosen, ["n1"])


def test_a_model_without_a_rule_is_refused_with_its_field(tmp_path: Path) -> None:
    give_model(tmp_path, {**TINY, "compress_ratios": [4]})
    refused = outcome(tmp_path)

    assert isinstance(refused, PlanRefused)
    assert str(refused).startswith("n1: memory unknown: config.json: compress_ratios: not supported")


def test_an_engine_without_rules_is_refused(tmp_path: Path) -> None:
    other = recipe(engine="atlas", image={"torch": None, "vllm": None, "template": "atlas"})

    with pytest.raises(PlanRefused, match="q: memory unknown: no rules for the engine atlas, only for vllm"):
        fits(on(tmp_path), other)


def test_a_plan_prints_the_same(tmp_path: Path) -> None:
    give_model(tmp_path)
    lines = section(on(tmp_path), WANTED, ["n1"]).splitlines()

    assert lines[:3] == ["", "memory, predicted:", "  n1: fits an empty node"]
    assert "    weights       0.0 GiB per rank" in lines


def test_a_plan_is_not_refused_where_the_memory_is_unknown(tmp_path: Path) -> None:
    lines = section(on(tmp_path), WANTED, ["n1"]).splitlines()

    assert lines[2].startswith("  n1: memory unknown: no config.json in ")
    assert lines[3].startswith("    next: sparkops models pull q --node n1")


def test_a_plan_of_an_engine_without_a_model_has_no_such_section(tmp_path: Path) -> None:
    stand_in = recipe(engine="stand-in", image={"torch": None, "vllm": None, "template": "stand-in"})

    assert section(on(tmp_path), stand_in, ["n1"]) == ""


SHARE = {"gpu-memory-utilization": 0.5}
DENSE = recipe(image={"torch": CUDA, "vllm": "vllm==0.23.0"}, serve={"args": SHARE})


def started(cache_gib: float | None, of: Recipe = DENSE, share: float | None = 0.5) -> Started:
    memory = ReportedMemory(2.72, cache_gib, 0.52)
    stages = {Stage.SERVING: 5.0}
    return Started(release="q-1", kind="q", stages=stages, settings=settings(of), share=share, memory=memory)


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        ([], None),
        ([started(36.0), started(36.19)], Measured(2.72, 36.19, 0.5, 0.52)),
        ([started(36.19), started(None)], Measured(2.72, 36.19, 0.5, 0.52)),
        ([started(36.19, share=None)], None),
        ([started(36.19, recipe(serve={"args": {"max-num-seqs": 8}}))], None),
    ],
    ids=["none", "the newest", "a log without it", "a fixed cache", "other settings"],
)
def test_the_newest_start_with_the_same_settings_counts(past: list[Started], expected: Measured | None) -> None:
    assert measured(DENSE, past) == expected


class Guarded(NoContainers):
    """A Docker Engine whose node has a guard."""

    def container(self, name: str) -> Any:
        return {"Name": name}


@pytest.mark.local
@pytest.mark.parametrize("answers", [True, False])
def test_fit_asks_the_guard_of_the_node_for_its_last_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """The program `docker exec` is replaced, which connects to the guard; a GPU of an H100 is shown."""
    give_model(tmp_path)
    stored = [started(36.19).model_dump(mode="json")]
    script = f"import json, sys\nfor _ in sys.stdin: print(json.dumps({{'ok': {stored!r}}}), flush=True)"
    printed = {
        "docker": f'#!/bin/sh\nexec {sys.executable} -c "{script}"\n' if answers else "#!/bin/sh\nexit 1\n",
        "nvidia-smi": "#!/bin/sh\necho '81559, 81079, 480'\n",
    }
    (tmp_path / "bin").mkdir()
    for name, text in printed.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    node: Member = replace(member("n1", tmp_path), engine=cast("Engine", Guarded()))

    [fit] = fits(connected(node), DENSE).values()

    assert isinstance(fit, Fit), fit
    assert fit.measured is answers
    if answers:
        assert (fit.weights_gib, round(fit.cache_gib, 2), fit.note) == (2.72, 36.19, "")
    else:
        assert fit.note.startswith("past starts not read: n1: ")
