"""A new release is compared with the old one before the switch, and vLLM's own benchmark measures both."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

from sparkops.config import inventory
from sparkops.operator.bench.runs import FIGURES
from sparkops.operator.bench.tool import EACH
from tests import checkpoints
from tests.lab.gpu import models
from tests.lab.gpu.conftest import HOME, larger
from tests.lab.gpu.evidence import CHECKOUT
from tests.lab.gpu.lab import Lab
from tests.lab.gpu.machine import Gpu
from tests.real.program import Ran

pytestmark = pytest.mark.gpu
MODELS = Path("/srv/models")
FAILED = 1
BESIDE = ("--mode", "beside")
REFUSE = {"swap.compare": "refuse"}
EQUAL = {"args.max-num-seqs": "128"}
"""Another argument with the same weights. Later releases keep it, so that each differs from the old one in one way."""
CHECKS = ("questions", "repeat", "concurrent", "streaming")
BLIND = {f"probe.smoke.{check}.enabled": "false" for check in CHECKS}
"""Without the checks that need a right answer: only the comparison is left to refuse a release."""
TEMPLATE = "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}"
OTHER = "log-probabilities differ by up to"
STREAMS = (1, 8, 32)
PAGE = HOME.relative_to(CHECKOUT) / "bench.html"


@dataclass(frozen=True)
class Variant:
    """A new release that differs from the old one. `says`: what its refusal names; `layer`: weights that get noise."""

    title: str
    settings: Mapping[str, str]
    says: str
    layer: str = ""


VARIANTS = (
    Variant("noise in one layer", {"env.RELEASE": "noise"}, OTHER, checkpoints.NOISY_LAYER),
    Variant(
        "a smaller window", {"args.max-model-len": "512"}, "the context is 512 tokens, that of the old release 1024"
    ),
    Variant("another chat template", {"args.chat-template": "/models/other.jinja"}, OTHER),
)
MID = Variant("noise in one of 28 layers", {"env.RELEASE": "noise"}, OTHER, "model.layers.14.mlp.down_proj.weight")


@dataclass(frozen=True)
class Load:
    """Tokens of a prompt and of an answer of `sparkops bench`."""

    prompt: int
    answer: int


SHORT, LONG = Load(256, 128), Load(1024, 256)


@pytest.fixture(scope="module")
def service(lab: Lab, model: str) -> Lab:
    """A service of the tiny model, whose deploys refuse a release that differs from the one that serves."""
    (MODELS / "other.jinja").write_text(TEMPLATE)
    given = {"service": "gpu-compare", "serve.port": "8600", "model.path": model, **REFUSE}
    service = lab.with_(service="gpu-compare", port=8600, settings={**lab.settings, **given})
    service.deploy("deploy, no release to compare with")
    service.check_answer("ask")
    return service


@pytest.fixture(scope="module")
def first(service: Lab) -> Any:
    """The benchmark of the first release through the gateway."""
    return bench(service, "bench through the gateway", SHORT)


def bench(lab: Lab, title: str, load: Load, *options: str) -> Any:
    """Measure what serves as a step. Returns the run. Raises AssertionError if a figure of it is missing."""
    concurrency = ",".join(map(str, STREAMS))
    lengths = ("--input-tokens", str(load.prompt), "--output-tokens", str(load.answer))
    run = lab.run(title, "bench", lab.service, "--concurrency", concurrency, *lengths, *options, "--json").json
    for point in run["points"]:
        result = point["result"]
        note(
            lab,
            f"{point['concurrency']} streams: {result['output_throughput']:.0f} tokens/s, first token p50 "
            f"{result['median_ttft_ms']:.1f} ms and p99 {result['p99_ttft_ms']:.1f} ms, from token to token "
            f"{result['median_tpot_ms']:.2f} ms",
        )
    note(lab, f"{run['tool']['name']} {run['tool']['version']}")
    assert run["release"] == lab.status()["live"]["release"]
    assert run["via"] == ("engine" if "--direct" in options else "gateway")
    assert run["start"]["took_s"] > 0
    assert run["clocks"], "no clocks of a GPU"
    assert [point["concurrency"] for point in run["points"]] == [*STREAMS]
    for point in run["points"]:
        count, result = EACH * point["concurrency"], point["result"]
        assert point["complete"]
        assert (result["completed"], result["failed"]) == (count, 0)
        assert result["total_output_tokens"] == count * load.answer
        assert all(isfinite(result[name]) and result[name] > 0 for name in FIGURES), result
    return run


def note(lab: Lab, figure: str) -> None:
    """Add a figure to the last step."""
    lab.evidence.steps[-1].figures.append(figure)
    lab.evidence.write()


def compared(lab: Lab) -> list[str]:
    """Return what `history` has of comparisons, oldest first."""
    events = lab.cli("history", lab.service, "--json").json["events"]
    return [event["text"] for event in events if event["kind"] == "compared"]


def swap(lab: Lab, title: str, change: Mapping[str, str], code: int = 0) -> tuple[Ran, str, Mapping[str, int]]:
    """Deploy beside what serves, under load. Returns the run, the comparison, and the answers of each release."""
    lab.settle()
    before = len(compared(lab))
    with lab.loaded(title) as load:
        ran = lab.deploy(title, *BESIDE, change=change, code=code)
        load.wait_for(load.report().good + 50, 60)
    with lab.evidence.step(f"comparison of: {title}") as step:
        (text,) = compared(lab)[before:]
        step.figures.append(text)
        assert "the same weights" in text
    return ran, text, load.report().releases


def refused(lab: Lab, variant: Variant) -> None:
    """Deploy what the comparison alone must refuse. Raises AssertionError if it is not, or a request notices."""
    release = lab.check_answer(f"ask before: {variant.title}")
    with noisy(lab, variant.layer) if variant.layer else nullcontext():
        ran, text, named = swap(lab, variant.title, {**EQUAL, **BLIND, **variant.settings}, FAILED)
    assert f"it differs from {release}: " in ran.err, ran.err
    assert variant.says in text.partition("it differs from")[2], text
    assert lab.check_answer(f"ask after: {variant.title}") == release
    with lab.evidence.step(f"releases that answers name: {variant.title}") as step:
        step.figures.append(", ".join(f"{name} {count}" for name, count in named.items()))
        assert {*named} == {release}, named


@contextmanager
def noisy(lab: Lab, layer: str) -> Iterator[None]:
    """Noise in a layer of the model meanwhile, under its own name: what serves has its weights in memory."""
    model = lab.settings["model.path"]
    right, aside = MODELS / model, MODELS / f"{model}-right"
    right.rename(aside)
    try:
        shutil.copytree(aside, right)
        checkpoints.add_noise(right / "model.safetensors", layer)
        yield
    finally:
        shutil.rmtree(right)
        aside.rename(right)


def test_an_equal_release_takes_over_under_load(service: Lab, first: Any) -> None:
    ran, text, _ = swap(service, "equal weights and another argument", EQUAL)

    assert service.check_answer("ask the equal release") == ran.json["release"] != first["release"]
    assert "it differs from" not in text


def test_bench_compares_two_releases_and_writes_a_page(service: Lab, first: Any) -> None:
    second = bench(service, "bench of the second release", SHORT)
    assert second["release"] != first["release"], "no second release serves"
    names = [f"{run['started']}-{run['release']}" for run in (first, second)]

    page = ("--report", str(PAGE))
    found = service.run("both releases side by side", "bench", "--compare", *names, *page, "--json").json
    for row in found["figures"]:
        if row["figure"] in ("output_throughput", "median_ttft_ms"):
            values = f"{row['first']:.1f} and {row['second']:.1f}, {row['ratio']:.2f}x"
            note(service, f"{row['concurrency']} streams, {FIGURES[row['figure']]}: {values}")
    assert found["differences"] == []
    assert len(found["figures"]) == len(STREAMS) * len(FIGURES)
    text = (CHECKOUT / PAGE).read_text()
    service.evidence.keep("bench.html", text)
    note(service, f"page of {len(text.encode())} bytes")
    assert all(run["release"] in text for run in (first, second))


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.title)
def test_a_release_that_differs_is_refused_and_the_old_one_serves_on(service: Lab, variant: Variant) -> None:
    refused(service, variant)


def test_bench_measures_the_engine_without_the_gateway(service: Lab) -> None:
    bench(service, "bench without the gateway", SHORT, "--direct")


def test_a_larger_model_is_measured_and_compared(service: Lab, built: str, gpus: tuple[Gpu, ...]) -> None:
    fleet, settings = inventory.load(service.cli.inventory), larger(gpus, 8710)
    with service.evidence.step("train the larger model in the image") as step:
        step.figures.append(models.make(fleet, "here", built, "mid_model.py", "/out/mid-qwen3"))
    mid = service.with_(service="gpu-mid", port=8710, settings={**service.settings, **settings})
    mid.deploy("deploy the larger model")
    bench(mid, "bench of the larger model", LONG)
    ran, text, _ = swap(mid, "equal weights of the larger model", EQUAL)
    assert mid.check_answer("ask the equal release of the larger model") == ran.json["release"]
    assert "it differs from" not in text
    refused(mid, MID)
