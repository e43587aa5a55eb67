"""The environment that limits the compilers an engine starts at run time."""

from __future__ import annotations

LIMITS = ("MAX_JOBS", "TORCHINDUCTOR_COMPILE_THREADS", "TILELANG_AUTO_TUNING_MAX_CPU_COUNT")
"""Variables that hold the number of compilers, which differs between nodes. The sources of these packages read them:
- MAX_JOBS: the ninja of FlashInfer 0.6.0 to 0.6.18, tvm-ffi 0.1.15 and torch.utils.cpp_extension; else cores + 2 jobs;
- TORCHINDUCTOR_COMPILE_THREADS: the workers of torch's inductor; else one per core up to 32. vLLM itself sets 1;
- TILELANG_AUTO_TUNING_MAX_CPU_COUNT: the autotuner of TileLang 0.1.15; else 0.9 per core.
Triton 3.6 compiles inside the engine's processes and reads no such variable. NVCC_THREADS and
CMAKE_BUILD_PARALLEL_LEVEL are read by source builds only."""
SINGLE = {"FLASHINFER_NVCC_THREADS": "1"}
"""Threads of one nvcc, which multiply its memory. FlashInfer's default, given because an image may set another."""


def compilers(jobs: int) -> dict[str, str]:
    """Return the environment that holds an engine to `jobs` compilers at once."""
    return {**dict.fromkeys(LIMITS, str(jobs)), **SINGLE}
