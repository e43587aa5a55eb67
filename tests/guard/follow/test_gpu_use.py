"""An engine for a GPU that computes on the CPU has failed its start, unless its recipe asks for the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.guard.follow import gpu_use
from sparkops.swap.model import Answer
from tests.examples import recipe

pytestmark = pytest.mark.unit

ON_GPU = """\
/proc/7/fd:
lrwx------ 1 engine engine 64 Nov 29 13:18 10 -> /dev/nvidia-uvm
lrwx------ 1 engine engine 64 Nov 29 13:18 11 -> /dev/nvidia0
lrwx------ 1 engine engine 64 Nov 29 13:18 17 -> /dev/nvidiactl
done
"""
"""As seen on an H200 (driver 580.159.04): a process of torch with a CUDA context; one without has none of the three."""
ON_CPU = "/proc/7/fd:\nlrwx------ 1 engine engine 64 Nov 29 13:18 3 -> /models/q/model.gguf\ndone\n"
LLAMA: dict[str, Any] = {"torch": None, "vllm": None, "template": "llama-cpp", "backend": "cu130"}


@pytest.mark.parametrize(
    ("listed", "answer"),
    [
        (ON_GPU, Answer.YES),
        (ON_CPU, Answer.NO),
        (ON_CPU.replace("3 ->", "4 -> /dev/nvidiactl\nlrwx------ 3 ->"), Answer.NO),
        (ON_CPU.removesuffix("done\n"), Answer.UNKNOWN),
        ("done\n", Answer.UNKNOWN),
        ("", Answer.UNKNOWN),
    ],
    ids=["context", "none", "control file only", "cut short", "no files listed", "nothing"],
)
def test_open_files_show_whether_a_gpu_is_used(listed: str, answer: Answer) -> None:
    assert gpu_use.used(listed) is answer


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        ({}, True),
        ({"n-gpu-layers": "all"}, True),
        ({"n-gpu-layers": 999}, True),
        ({"n-gpu-layers": 0}, False),
        ({"n-gpu-layers": 20}, False),
        ({"device": "none"}, False),
        ({"device": "CUDA0"}, True),
        ({"cpu-moe": True}, False),
    ],
)
def test_a_recipe_may_leave_layers_to_the_cpu(args: dict[str, Any], *, wanted: bool) -> None:
    of = recipe(engine="llama-cpp", image=LLAMA, model={"file": "q.gguf"}, serve={"args": args})

    assert gpu_use.wanted(of) is wanted


def test_a_recipe_for_the_cpu_wants_no_gpu() -> None:
    assert not gpu_use.wanted(recipe(engine="llama-cpp", image={**LLAMA, "backend": None}, model={"file": "q.gguf"}))


def test_layers_that_are_left_out_are_named() -> None:
    log = ["load_tensors: offloading 20 repeating layers to GPU", "load_tensors: offloaded 20/29 layers to GPU"]

    assert gpu_use.left_out(log) == "20 of 29 layers are on the GPU, the others on the CPU"
    assert gpu_use.left_out(["load_tensors: offloaded 29/29 layers to GPU"]) == ""
    assert gpu_use.left_out([]) == ""
