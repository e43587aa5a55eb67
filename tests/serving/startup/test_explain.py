"""The likely cause and the next step of failed starts: of real logs, and of lines from vLLM's source."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkops.engines.causes import Advice
from sparkops.engines.vllm.causes import TAKE_LESS
from sparkops.serving.startup import causes
from sparkops.serving.startup import explain as module
from sparkops.serving.startup.explain import explain, of_docker

Captured = Callable[[str], str]
STOP = "Stop the processes that use the memory (on the node: nvidia-smi, docker ps, free -g)"
FREE = "ValueError: Free memory on device cuda:0 (30.0/80.0 GiB) on startup is less than "
LENGTH = (
    "ValueError: To serve at least one request with the model's max seq len (4096), (8.0 GiB KV cache is needed, which "
    "is larger than the available KV cache memory (0.5 GiB). "
)
NO_BLOCKS = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"


@pytest.mark.parametrize(
    ("log", "cause", "step"),
    [
        (
            "free-memory-less-than-desired",
            "13.89 of 79.18 GiB are free on cuda:0; gpu-memory-utilization 0.95 reserves 75.22 GiB",
            f"{STOP}, or set gpu-memory-utilization to 0.17 or less in serve.args.",
        ),
        (
            "window-larger-than-cache",
            "max-model-len 200000 needs 21.36 GiB of KV cache, and 1.35 GiB remain for it",
            "Set max-model-len to 12624 or less in serve.args, "
            "or raise gpu-memory-utilization so that it reserves 20.01 GiB more.",
        ),
        (
            "no-cache-blocks",
            "gpu-memory-utilization reserves 1.02 GiB less than the model needs without a KV cache",
            "Raise gpu-memory-utilization in serve.args so that it reserves 1.02 GiB more, plus the KV cache; "
            "or lower max-num-batched-tokens or max-num-seqs.",
        ),
        (
            "out-of-memory",
            "an allocation of 60.00 GiB failed: 53.96 GiB of the GPU's 79.18 GiB were free when the KV cache was "
            "allocated: another program took memory after vLLM had measured it, or it was set too large",
            "Stop other programs on the node (sparkops stop), or lower gpu-memory-utilization or "
            "kv-cache-memory-bytes.",
        ),
        (
            "no-device",
            "the engine finds no GPU: the container has none, or torch or the driver cannot use it",
            "Check `nvidia-smi` on the node and `gpu` of the node in the inventory (runtime, cdi or devices), then run "
            "`sparkops doctor`.",
        ),
        (
            "no-module",
            "the image lacks a Python module that the engine imports: humming",
            "Add the package that has `humming` to image.packages, or remove it from image.remove; "
            "then build and deploy again.",
        ),
    ],
)
def test_the_cause_of_a_real_failure_has_its_figures(captured: Captured, log: str, cause: str, step: str) -> None:
    assert explain(captured(f"vllm-0.23.0-cuda-{log}.log").splitlines(), causes.of("vllm")).advice == Advice(
        cause, step
    )


def test_an_image_without_a_compiler_is_the_cause(captured: Captured) -> None:
    """Seen with a finished image for the CPU, whose recipe does not say `enforce-eager`."""
    found = explain(captured("vllm-0.32.0-cpu-no-compiler.log").splitlines(), causes.of("vllm")).advice

    assert found == Advice(
        "the image has no C++ compiler, and the engine compiles code when it starts",
        "Add g++ to image.apt, then build and deploy again.",
    )


def test_two_packages_with_the_same_files_are_named_in_vllm_0_33(captured: Captured) -> None:
    """Seen on an H200: uv installed cuda-python 12.6.2.post1 beside cuda-bindings 13.5.0, and the gate passed."""
    found = explain(captured("vllm-0.33.0-cuda-overwritten-module.log").splitlines(), causes.of("vllm")).advice

    assert found is not None
    assert found.cause == (
        "cuda.bindings.runtime in the image is another release than the engine needs: cuda-python overwrote that of "
        "cuda-bindings with an older one, or an old cuda-bindings is installed"
    )
    assert found.step.startswith("Add cuda-python to image.remove of the recipe")


@pytest.mark.parametrize(
    "log",
    [
        "vllm-0.23.0-cuda-h100-start-cold.log",
        "vllm-0.32.0-cpu-start.log",
        "vllm-0.33.0-cuda-h200-start-cold.log",
    ],
)
def test_a_start_that_succeeds_has_no_cause_of_failure(captured: Captured, log: str) -> None:
    assert explain(captured(log).splitlines(), causes.of("vllm")).advice is None


@pytest.mark.parametrize(
    ("line", "cause", "step"),
    [
        (
            f"{FREE}the engine's budget after excluding external process's weights (0.9, 40.0 GiB). Decrease GPU",
            "30 of 80 GiB are free on cuda:0; gpu-memory-utilization 0.9 reserves 40 GiB",
            f"{STOP}, or set gpu-memory-utilization to 0.77 or less in serve.args.",
        ),
        (
            f"{FREE.replace('30.0', '0.1')}desired GPU memory utilization (0.9, 72.0 GiB).",
            "0.1 of 80 GiB are free on cuda:0; gpu-memory-utilization 0.9 reserves 72 GiB",
            f"{STOP}.",
        ),
        (
            f"{LENGTH}Try increasing `gpu_memory_utilization`",
            "max-model-len 4096 needs 8.0 GiB of KV cache, and 0.5 GiB remain for it",
            "Lower max-model-len in serve.args, or raise gpu-memory-utilization so that it reserves 7.50 GiB more.",
        ),
        (
            "  Value error, User-specified max_model_len (4096) is greater than the derived max_model_len "
            "(max_position_embeddings=2048 or model_max_length=None in model's config.json). To allow overriding this",
            "max-model-len 4096 is more than the model's 2048",
            "Lower max-model-len in serve.args, or set VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 in serve.env to extend the "
            "context.",
        ),
        (
            f"{NO_BLOCKS} when initializing",
            "gpu-memory-utilization reserves less than the model needs without a KV cache",
            "Raise gpu-memory-utilization in serve.args; or lower max-num-batched-tokens or max-num-seqs.",
        ),
        ("NV_ERR_NO_MEMORY", "the engine ran out of GPU memory", TAKE_LESS),
        (
            "vllm: error: unrecognized arguments: --foo",
            "this vLLM does not accept an argument of serve.args: --foo",
            "Remove --foo from serve.args, or build a vLLM that accepts it.",
        ),
        (
            "vllm serve: error: argument --tensor-parallel-size/-tp: invalid int value: 'two'",
            "this vLLM does not accept the value of --tensor-parallel-size/-tp: invalid int value: 'two'",
            "Correct it in serve.args.",
        ),
        (
            "ValueError: Insufficient space in /dev/shm to allocate 160 MB",
            "the container's shared memory (/dev/shm) is too small",
            "Raise serve.shm_gib in the recipe.",
        ),
        (
            "OSError: [Errno 98] Address already in use",
            "another program uses the port",
            "Find it with `sudo ss -ltnp` on the node and stop it.",
        ),
        (
            "ptxas fatal   : Unsupported PTX version",
            "the image was built for a newer CUDA than the node's driver supports",
            "Use an image with an older CUDA (image.base or image.use), or update the driver.",
        ),
        (
            "OSError: [Errno 28] No space left on device",
            "the node's disk is full",
            "Free space on the node: sparkops prune; docker system df",
        ),
    ],
)
def test_a_known_line_has_a_cause_and_a_next_step(line: str, cause: str, step: str) -> None:
    assert explain(["an earlier line", line, "a later line"], causes.of("vllm")).advice == Advice(cause, step)


@pytest.mark.parametrize(
    "line",
    [
        "KeyError: 'x'",
        "WARNING 11-21 00:17:18 [parallel.py:746] Address already in use. Retrying with a new port.",
        "INFO 11-21 00:17:18 [gpu_worker.py:1034] Free memory on device (78.0/79.2 GiB) on startup. Desired GPU memory",
    ],
)
def test_any_other_line_has_none(line: str) -> None:
    assert explain([line], causes.of("vllm")).advice is None


@pytest.mark.parametrize(
    ("file", "cause", "command"),
    [
        (
            "docker-26.1-gpus-all-without-toolkit.txt",
            "the node's Docker lacks the NVIDIA Container Toolkit, which `gpu: runtime` (--gpus) needs: it is not "
            "installed, or its runtime is not registered in this Docker",
            "sudo nvidia-ctk runtime configure --runtime=docker; sudo systemctl restart docker\n",
        ),
        (
            "docker-26.1-cdi-without-spec.txt",
            "no CDI specification of the node has the devices nvidia.com/gpu=all: it was not written, is older than "
            "the devices, or their name is wrong",
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; nvidia-ctk cdi list must then "
            "show nvidia.com/gpu=all\n",
        ),
    ],
)
def test_a_gpu_that_docker_cannot_give_has_a_cause(captured: Captured, file: str, cause: str, command: str) -> None:
    known = of_docker(captured(file))

    assert known
    assert known.cause == cause
    assert command in known.step


def test_disabled_cdi_is_not_a_missing_toolkit() -> None:
    """The words of Docker 26 in NVIDIA/nvidia-container-toolkit#434."""
    message = 'docker: Error response from daemon: could not select device driver "cdi" with capabilities: [].'

    known = of_docker(message)

    assert known
    assert known.cause.startswith("CDI is disabled")
    assert '{"features": {"cdi": true}}' in known.step


def test_the_last_error_of_docker_is_the_one() -> None:
    """The image is pulled where it is missing, and the pull is not what fails."""
    printed = (
        "Unable to find image 'nvcr.io/nvidia/vllm:26.02-py3' locally\n"
        "Status: Downloaded newer image for nvcr.io/nvidia/vllm:26.02-py3\n"
    )
    last = "docker: Error response from daemon: failed to set up container networking: network spark-net not found\n"

    known = of_docker(printed + last)

    assert known
    assert known.cause.startswith("the network spark-net of the container")
    assert of_docker(f"{printed}docker: Error response from daemon: of another kind\n") is None


def test_the_reason_of_the_system_is_the_cause_rather_than_what_failed() -> None:
    line = "RuntimeError: CUDA error: out of memory while writing: [Errno 24] Too many open files"

    found = explain([line], causes.of("vllm")).advice

    assert found
    assert found.cause.startswith("the container may not open more files")


def test_a_line_that_introduces_the_root_is_not_shown_as_it() -> None:
    lines = (
        "ImportError: ",
        "[sgl_kernel] CRITICAL: Could not load any common_ops library!",
        "- ImportError: libnuma.so.1: cannot open shared object file: No such file or directory",
    )

    assert explain(lines, causes.of("sglang")).number == 2


WAITS = "(Worker pid=1) INFO 11-28 13:00:19 [x.py:1] world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://a:1"
MET = "(Worker pid=1) INFO 11-28 13:00:24 [x.py:1] rank 0 in world size 2 is assigned as DP rank 0"
FAILED = "(Worker pid=1) ERROR 11-28 13:00:24 [x.py:1] KeyError: 'x'"


@pytest.mark.parametrize(("after", "waits"), [((), True), ((MET,), False), ((FAILED,), False)])
def test_a_rank_waits_until_the_ranks_have_met_or_one_failed(after: tuple[str, ...], *, waits: bool) -> None:
    found = explain([WAITS, *after], causes.of("vllm"), stalled=True).advice

    assert bool(found) is waits


def test_another_error_of_docker_has_none() -> None:
    assert of_docker("Error response from daemon: No such container: x") is None


def test_an_endless_log_is_compared_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine may print anything, and a guard waits for the comparison."""
    monkeypatch.setattr(module, "MOST", 3000)
    filling = [f"x: error: {'y' * 1000}"] * 4
    line = "ModuleNotFoundError: No module named 'humming'"

    assert explain([line, *filling], causes.of("vllm")).root == line
    assert explain([*filling, line], causes.of("vllm")).advice is None
