"""The real vLLM as two stages of two ranks over four nodes, joined by Ray and by vLLM's own launcher."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.fleet.fleet import Fleet
from tests.operator.demo.traffic.openai_clients import Clients
from tests.real import pairs
from tests.real.program import Cli
from tests.real.service import Service, write_inventory
from tests.real.test_pair import answer
from tests.real.test_ranks import ALL

pytestmark = [pytest.mark.vllm, pytest.mark.matrix]  # it needs four nodes

SIZES = {
    "serve.tensor_parallel": "2",
    "serve.pipeline_parallel": "2",
    # Without a warm-up a later stage has no tensors to receive into (gpu_model_runner.py of 0.32.0), and on the CPU an
    # eager model has none. Dynamo is off (TORCHDYNAMO_DISABLE), so that nothing is compiled, but it is warmed up.
    "args.enforce-eager": "false",
    "args.compilation-config": '{"mode": 1, "backend": "eager"}',
}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The tiny model's image and two checkpoints of it on four nodes, which talk over plain TCP."""
    nodes = Fleet.up(4)
    home = tmp_path_factory.mktemp("ranks")
    cli = Cli(write_inventory(nodes, home, pairs.fabric), home)
    pairs.prepare(cli, nodes, "tiny-qwen3", "tiny-other")
    service = pairs.service(cli, nodes, **SIZES)
    yield service
    service.sweep()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("executor", ["ray", "mp"])
def test_four_ranks_answer_rightly_and_are_replaced_in_place_under_load(four: Service, executor: str) -> None:
    """Clients are OpenAI's own package, without retries: the gateway lets them wait while none of the two serves."""
    service = replace(four, settings={**four.settings, "serve.executor": executor})
    service.sweep()
    first = service.deploy(*pairs.on(ALL))
    assert (first.code, first.json["mode"]) == (0, "first"), first.err
    assert pairs.whole(service, str(first.json["release"]), ALL), pairs.ranks(service)
    assert "Paris" in answer(service)

    clients = Clients(service.url, service.name)
    with clients.running(4):
        clients.wait_for_more(4)
        way = pairs.on(ALL, "--mode", "in-place", "--allow-downtime")
        second = service.deploy(*way, model__path="tiny-other")
        clients.wait_for_more(4)

    print(f"{executor}: first {pairs.took(first)}; second {pairs.took(second)}; {len(clients.calls)} answers, 0 failed")
    assert (second.code, second.json["mode"]) == (0, "in-place"), second.err
    assert pairs.whole(service, str(second.json["release"]), ALL), pairs.ranks(service)
    assert "Paris" in answer(service)
    assert {call.release for call in clients.calls} == {first.json["release"], second.json["release"]}
