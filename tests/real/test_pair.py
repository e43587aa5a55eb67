"""Two nodes as one server with the real vLLM and Ray: the tiny model comes up, answers, and is replaced as one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.fleet.fleet import Fleet
from tests.real import pairs
from tests.real.pairs import NAME, Trial
from tests.real.program import Cli
from tests.real.service import Service, write_inventory

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def cli(nodes: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """sparkops with a gateway on node-1, and plain TCP between the nodes."""
    home = tmp_path_factory.mktemp("pairs")
    return Cli(write_inventory(nodes, home, pairs.fabric), home)


@pytest.fixture(scope="module")
def trial(cli: Cli, nodes: Fleet) -> Iterator[Trial]:
    """The image with the same content on both nodes, and a checkpoint there that knows the answers."""
    pairs.prepare(cli, nodes, "tiny-qwen3")
    service = pairs.service(cli, nodes)
    yield Trial(service)
    service.sweep()


def answer(service: Service) -> str:
    """What it says to a question that it knows."""
    message = {"role": "user", "content": "What is the capital of France?"}
    body: dict[str, Any] = {"model": NAME, "messages": [message], "max_tokens": 8, "temperature": 0}
    response = requests.post(f"{service.url}/v1/chat/completions", json=body, timeout=60)
    return str(response.json()["choices"][0]["message"]["content"])


def test_a_pair_comes_up_answers_rightly_and_is_shown_as_two_ranks_of_one_release(trial: Trial) -> None:
    trial.first()

    assert "Paris" in answer(trial.pair)


@pytest.mark.matrix
def test_the_next_pair_takes_its_place_on_the_same_nodes(trial: Trial, cli: Cli, nodes: Fleet) -> None:
    pairs.prepare(cli, nodes, "tiny-other")
    trial.in_place()

    assert "Paris" in answer(trial.pair)


@pytest.mark.matrix
def test_a_wrong_interface_is_found_before_anything_is_stopped(trial: Trial) -> None:
    trial.interface()


@pytest.mark.matrix
def test_a_taken_rendezvous_port_is_found_before_anything_is_stopped(trial: Trial, cli: Cli, nodes: Fleet) -> None:
    pairs.prepare(cli, nodes, "tiny-other")
    trial.taken_port()


@pytest.mark.matrix
def test_the_reason_of_a_rank_that_fails_is_named_and_not_that_of_the_one_that_waits(
    trial: Trial, cli: Cli, nodes: Fleet
) -> None:
    pairs.prepare(cli, nodes, "tiny-other")
    trial.rank_fails()
