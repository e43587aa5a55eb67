"""The failures of a start on a GPU, provoked beside a release that serves: it never stops and loses no request."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import yaml

from sparkops.units import GIB
from tests.lab.gpu import machine
from tests.lab.gpu.lab import Lab

pytestmark = pytest.mark.gpu
QUICK = {"vllm": {"args.enforce-eager": "true"}, "sglang": {"args.disable-cuda-graph": "true"}}
FAILED, REFUSED = 1, 5


@dataclass(frozen=True)
class Failure:
    """What a new release asks for, how its deploy ends and what its error says."""

    title: str
    settings: dict[str, str]
    says: str
    code: int = FAILED
    engine: str = "vllm"


FAILURES = (
    Failure(
        "more of the GPU than the recipe claims",
        {"args.gpu-memory-utilization": "0.97"},
        "less than the engine can take",
        REFUSED,
    ),
    Failure("a KV cache larger than the GPU", {"args.kv-cache-memory-bytes": "2T"}, "of GPU memory in total", REFUSED),
    # 8 MiB of an H100, where 0.4 GiB were enough to serve.
    Failure("less than the model itself takes", {"args.gpu-memory-utilization": "0.0001"}, "without a KV cache"),
    Failure("a window larger than the cache", {"args.kv-cache-memory-bytes": "256K"}, "max-model-len 1024 needs"),
    Failure(
        "more of the GPU than the recipe claims",
        {"args.mem-fraction-static": "0.97"},
        "less than the engine can take",
        REFUSED,
        "sglang",
    ),
    Failure(
        "less than the model itself takes",
        {"args.mem-fraction-static": "0.0001"},
        "leaves no room for a KV cache beside the weights",
        engine="sglang",
    ),
    Failure(
        "a context larger than the model's",
        {"args.context-length": "100000"},
        "is more than the model's",
        engine="sglang",
    ),
    Failure(
        "an argument with a value that the engine does not know",
        {"args.attention-backend": "no-such-backend"},
        "does not accept the value of --attention-backend",
        engine="sglang",
    ),
)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: f"{failure.engine}: {failure.title}")
def test_a_start_that_fails_leaves_the_release_that_serves(serving: Lab, failure: Failure) -> None:
    if failure.engine != serving.engine:
        pytest.skip(f"a failure of {failure.engine}")
    fails(serving, failure)


def test_a_kv_cache_that_leaves_nothing_for_the_rest_of_the_engine_is_refused(serving: Lab) -> None:
    """All that is free but 0.2 GiB, and a claim as large, which leaves nothing for what is outside the budget."""
    if serving.engine != "vllm":
        pytest.skip("another engine has no argument for the bytes of its KV cache")
    free_gib = machine.free_gib() - 0.2
    settings = {"args.kv-cache-memory-bytes": str(int(free_gib * GIB)), "memory.claim_gib": f"{free_gib:.3f}"}
    fails(serving, Failure("a KV cache of all that is free", settings, "outside its budget", REFUSED))


def fails(serving: Lab, failure: Failure) -> None:
    """Deploy what fails, under load. Raises AssertionError if the release that serves notices anything."""
    serving.settle()
    release = serving.check_answer("ask before")
    change = {**QUICK[serving.engine], **failure.settings}
    with serving.loaded(failure.title):
        failed = serving.deploy(failure.title, "--mode", "beside", change=change, code=failure.code)

    assert failure.says in failed.err + failed.out, failed.err
    assert serving.check_answer("ask after") == release


def test_a_container_without_a_gpu_fails_and_says_so(serving: Lab) -> None:
    """Its device nodes without the driver's files."""
    serving.settle()
    release = serving.check_answer("ask before")
    data = yaml.safe_load(serving.cli.inventory.read_text())
    data["nodes"]["here"] = {"transport": "local", "model_dir": "/srv/models", "gpu": "devices"}
    data["nodes"]["here"]["gpu_devices"] = ["/dev/null"]
    file = serving.cli.inventory.with_name("without.yaml")
    file.write_text(yaml.safe_dump(data))
    blind = serving.with_(cli=type(serving.cli)(file, serving.cli.state, env=serving.cli.env))
    with serving.loaded("a container without a GPU"):
        failed = blind.deploy("a container without a GPU", "--mode", "beside", code=1, change={"env.RELEASE": "blind"})

    assert "the container has no GPU" in failed.err + failed.out, failed.err
    assert serving.check_answer("ask after") == release
