"""What `fit` predicts of the real vLLM on a node's CPU, against what its log says of the same recipe."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.program import Cli

pytestmark = pytest.mark.vllm


def test_the_cache_is_as_predicted(sparkops: Cli, variant: Callable[..., Path], built: str, model: str) -> None:
    assert built
    assert model
    recipe = variant({"service: tiny": "service: tiny-fit", "port: 8000": "port: 8090"})
    fit = sparkops("fit", recipe, "--node", "node-1", "--json")
    assert fit.code == 0, fit.err
    [predicted] = fit.json["nodes"]
    planned = sparkops("plan", recipe, "--node", "node-1")
    assert "memory, predicted:\n  node-1: fits\n" in planned.out

    deployed = sparkops("deploy", recipe, "--node", "node-1", timeout=600)
    try:
        assert deployed.code == 0, deployed.err
        log = sparkops("logs", "tiny-fit", "--node", "node-1").out
    finally:
        sparkops("stop", "tiny-fit", "--node", "node-1")
    logged = re.search(r"KV cache size: ([\d,]+) tokens", log)
    assert logged, log[-2000:]
    assert predicted["kv_cache"]["tokens"] == pytest.approx(int(logged[1].replace(",", "")), rel=0.01)
