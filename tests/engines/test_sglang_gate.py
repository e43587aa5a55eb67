"""The image gate of SGLang: its version and its kernels, from the facts that templates/gate.py prints."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparkops.config.recipe import Recipe
from sparkops.engines import image_facts
from sparkops.engines.image_facts import OTHER_PROCESSOR, ImageFacts, ImportAnswer
from sparkops.engines.sglang.gate import KERNELS_OF_CUDA, NO_DRIVER, NO_KERNELS, NO_SGLANG, OTHER_TORCH
from sparkops.operator.build.images import gate
from tests.examples import IMAGE_FACTS, RECIPE

OF = Recipe.model_validate({**RECIPE, "engine": "sglang", "image": {"use": "lmsysorg/sglang:v0.5.23"}})
FACTS = replace(
    IMAGE_FACTS,
    machine="aarch64",
    torch=ImportAnswer("2.14.1+cu130"),
    cuda="13.0",
    vllm=ImportAnswer(error="ModuleNotFoundError: No module named 'vllm'"),
    packages=("sglang==0.5.23", "sglang-kernel==0.4.10", "torch==2.14.1"),
)


def verdicts(facts: ImageFacts) -> dict[str, tuple[bool, str, str]]:
    return {one.name: (one.ok, one.found, one.cause) for one in gate.verdicts(OF, facts)}


def test_an_image_with_sglang_and_its_kernels_passes_without_vllm() -> None:
    assert verdicts(FACTS) == {
        "sglang": (True, "0.5.23", ""),
        "SGLang kernels": (True, "sglang-kernel 0.4.10", ""),
        "cache": (True, "writable", ""),
    }


def test_the_older_name_of_the_kernels_passes() -> None:
    older = replace(FACTS, packages=("sglang==0.5.9", "sgl-kernel==0.3.21"))

    assert verdicts(older)["SGLang kernels"] == (True, "sgl-kernel 0.3.21", "")


def test_an_image_without_sglang_is_refused() -> None:
    got = verdicts(replace(FACTS, packages=("torch==2.14.1",)))

    assert got["sglang"] == (False, "not installed", NO_SGLANG)
    assert got["SGLang kernels"] == (False, "not installed", NO_KERNELS)


@pytest.mark.parametrize(
    ("error", "cuda", "cause"),
    [
        ("ImportError: libcuda.so.1: cannot open shared object file", "13.0", NO_DRIVER),
        ("ImportError: common_ops.abi3.so: undefined symbol: _ZN3c10", "13.0", OTHER_TORCH),
        ("ImportError: libc10_cuda.so: cannot open shared object file", None, KERNELS_OF_CUDA),
        ("ended by signal 4", "13.0", OTHER_PROCESSOR),
    ],
)
def test_kernels_that_do_not_load_have_a_cause(error: str, cuda: str | None, cause: str) -> None:
    facts = replace(FACTS, cuda=cuda, sgl_kernel=ImportAnswer(error=error))

    assert verdicts(facts)["SGLang kernels"] == (False, error, cause)


def test_the_answer_of_the_image_is_read() -> None:
    printed = {
        **{"machine": "aarch64", "torch": {"version": "2.14.1"}, "vllm": {}, "kernels": {}, "mods": []},
        **{"device_code": None, "packages": [], "cache_error": "", "sgl_kernel": {"error": "ImportError: x"}},
    }

    assert image_facts.parse(json.dumps(printed)).sgl_kernel == ImportAnswer(error="ImportError: x")
