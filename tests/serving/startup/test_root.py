"""The line that a failed start began with: after a failure that is caught, before what it causes elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkops.node.docker.facts import log_lines
from sparkops.serving.startup import causes
from sparkops.serving.startup.explain import explain

pytestmark = pytest.mark.unit

Captured = Callable[[str], str]
CORE = "(EngineCore pid=47) ERROR 11-21 22:06:42 [core.py:1195]"
CALM = "INFO 11-21 22:06:41 [x.py:1] loading"
RAY = "(Core pid=1) \x1b[36m(RayWorkerProc pid=2, ip=172.17.0.3)\x1b[0m (Worker_TP1 pid=2) ERROR 11-21 22:29:24 [x]"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("0.23.0-cuda-free-memory-less-than-desired", "ValueError: Free memory on device cuda:0 (13.89/79.18 GiB) on "),
        ("0.23.0-cuda-no-cache-blocks", "ValueError: No available memory for the cache blocks. Try increasing "),
        ("0.23.0-cuda-window-larger-than-cache", "ValueError: To serve at least one request with the model's max seq "),
        (
            "0.23.0-cuda-out-of-memory",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 60.00 GiB. GPU 0 ",
        ),
        ("0.23.0-cuda-no-device", "RuntimeError: Failed to infer device type, please set the environment variable "),
        ("0.23.0-cuda-no-module", "ModuleNotFoundError: No module named 'humming'"),
        ("0.33.0-cuda-overwritten-module", "AttributeError: module 'cuda.bindings.runtime' has no attribute 'cudaLib"),
        ("0.32.0-cpu-no-compiler", "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler "),
    ],
)
def test_the_root_of_a_real_failure_is_its_exception(captured: Captured, log: str, line: str) -> None:
    text = captured(f"vllm-{log}.log")
    lines = [line for _, line in sorted(log_lines(text))] or text.splitlines()

    assert explain(lines, causes.of("vllm")).root.startswith(line)


@pytest.mark.parametrize(
    "log",
    ["0.23.0-cuda-h100-start-cold", "0.23.0-cuda-tp2-ray-rank0", "0.32.0-cpu-start", "0.33.0-cuda-h200-start-cold"],
)
def test_a_start_that_succeeds_has_no_cause(captured: Captured, log: str) -> None:
    assert explain([line for _, line in log_lines(captured(f"vllm-{log}.log"))], causes.of("vllm")).advice is None


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (
            ("ImportError: optional", CALM, f"{CORE} EngineCore failed to start.", f"{CORE} KeyError: 'x'"),
            "KeyError: 'x'",
        ),
        ((f"{CORE} EngineCore failed to start.", f"{CORE} KeyError: 'x'", "OSError: later"), "KeyError: 'x'"),
        (("KeyError: 'x'", f"{CORE} EngineCore failed to start."), "KeyError: 'x'"),
        ((f"{CORE} EngineCore failed to start.", "a line"), "EngineCore failed to start."),
        (("KeyError: 'x'", "OSError: later"), "KeyError: 'x'"),
        (("KeyError: 'x'", "CUDA error: out of memory", "OSError: later"), "KeyError: 'x'"),
        (
            (
                f"{RAY} WorkerProc failed to start.",
                f"{RAY} KeyError: 'x'",
                f"{CORE} Exception: WorkerProc initialization failed due to an exception in a background process.",
            ),
            "KeyError: 'x'",
        ),
        (
            (
                f"{CORE} EngineCore failed to start.",
                f"{CORE} ray.exceptions.RayTaskError(KeyError): ray::RayWorkerProc.run() (pid=1)",
                f"{CORE} KeyError: 'x'",
            ),
            "KeyError: 'x'",
        ),
        (("[rank0]: Traceback (most recent call last):", "[rank0]: KeyError: 'x'"), "KeyError: 'x'"),
        (
            (
                f"{CORE} EngineCore failed to start.",
                f"{CORE} Traceback (most recent call last):",
                f'{CORE}     "CUDA out of memory"',
                f"{CORE} KeyError: 'x'",
            ),
            "KeyError: 'x'",
        ),
        (("  CUDA out of memory. Tried to allocate 2 GiB",), "CUDA out of memory. Tried to allocate 2 GiB"),
        (("INFO 11-21 22:06:42 [x.py:1] ImportError: optional",), ""),
        ((), ""),
    ],
)
def test_the_root_is_the_error_that_caused_the_others(lines: tuple[str, ...], line: str) -> None:
    assert explain(lines, causes.of("vllm")).root == line
