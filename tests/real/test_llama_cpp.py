"""Two real engines in one service: vLLM and llama.cpp replace each other while short requests and streams run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from sparkops.serving import engine_spec
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import RECIPE, Cli
from tests.real.service import Service

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]

LLAMA = RECIPE.with_name("tiny-llama-cpp-cpu.yaml")
MODEL = "tiny-qwen3-gguf"
COMPILE_S = 3600
"""llama.cpp takes 13 minutes of one core at -O2."""
SETTINGS = {
    "swap.bake_s": "5",
    "swap.reserve_gib": "1",
    "swap.drain_s": "60",
    "probe.passes": "1",
}
LOAD = {"rate": 2, "streams": 2, "stream_pause_s": 3, "stream_tokens": 100, "timeout_s": 120}


@pytest.fixture(scope="module")
def llama(front: Cli, nodes: RealFleet, model: str) -> Iterator[Cli]:
    """The image of llama.cpp on every node, and the tiny model as a GGUF file, made on each by its step."""
    assert model == "tiny-qwen3"
    built = front("build", LLAMA, "--once", "--json", timeout=COMPILE_S)
    assert built.code == 0, built.err
    for node in nodes.nodes:
        node.exec("rm", "-rf", f"/srv/models/{MODEL}")
        prepared = front("models", "prepare", LLAMA, "--node", node.name, timeout=600)
        assert prepared.code == 0, prepared.err
    yield front
    for node in nodes.nodes:
        node.exec("rm", "-rf", f"/srv/models/{MODEL}")


@pytest.fixture(scope="module")
def tiny(llama: Cli, nodes: RealFleet) -> Iterator[Service]:
    """The tiny model on vLLM behind the gateway."""
    service = Service(llama, nodes, str(RECIPE), "tiny", 8000, SETTINGS)
    service.anew("--node", "node-2")
    yield service
    service.sweep()


def engine(service: Service) -> str:
    """The engine of the release that serves."""
    active = service.journal().active
    assert active
    return str(engine_spec.of(next(active.ranks)).recipe.get("engine", "vllm"))


@pytest.mark.parametrize(("recipe", "mode"), [(LLAMA, "across"), (RECIPE, "across"), (LLAMA, "beside")])
def test_another_engine_takes_over_and_no_request_fails(tiny: Service, recipe: object, mode: str) -> None:
    old = tiny.journal().active
    assert old
    (rank,) = old.ranks
    other = "node-1" if rank.node == "node-2" else "node-2"
    service = Service(tiny.cli, tiny.nodes, str(recipe), "tiny", 8000, SETTINGS)
    with service.load(**LOAD) as load:
        load.wait_for(10)
        ran = service.deploy("--node", other if mode == "across" else rank.node, "--mode", mode)
        load.wait_for(load.report().good + 10)
    report = load.report()

    assert (ran.code, ran.json["mode"], ran.json["cut"]) == (0, mode, 0), ran.err
    assert (report.failures, report.refusals) == ({}, 0), report.examples
    assert report.streams > 5
    assert set(report.releases) == {old.release, ran.json["release"]}
    assert engine(tiny) == ("llama-cpp" if recipe == LLAMA else "vllm")


def test_llama_server_answers_as_the_model_that_it_was_made_of(tiny: Service) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    answer = requests.post(f"{tiny.url}/v1/chat/completions", json={**body, "temperature": 0}, timeout=60)

    assert engine(tiny) == "llama-cpp"
    assert answer.status_code == 200, answer.text
    assert "Paris" in answer.json()["choices"][0]["message"]["content"]


def test_a_rollback_returns_to_vllm_and_no_request_fails(tiny: Service) -> None:
    """The image, the model and the arguments are those of the other engine."""
    with tiny.load(**LOAD) as load:
        load.wait_for(10)
        ran = tiny.cli("rollback", "tiny", "--json")
        load.wait_for(load.report().good + 10)
    report = load.report()

    assert ran.code == 0, ran.err
    assert (report.failures, report.refusals) == ({}, 0), report.examples
    assert engine(tiny) == "vllm"
