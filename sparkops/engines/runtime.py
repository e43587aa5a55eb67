"""The user that engines run as, and the environment of their compilers: how many, and where results are kept."""

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
USER = 10841
"""User and group ID of engines, without rights on any node: high enough for no distribution to assign it to a person
or a service. templates/macros.j2 gives it a name and a home in each image, because getpass.getuser() raises KeyError
for an ID without a name."""
HOME = "/home/engine"
"""Home of that user in a container. It belongs to the image: what is written there goes with the container."""
CACHE = f"{HOME}/.cache"
"""Where a container sees the cache volume of its release. It must end in /.cache, which FlashInfer adds by itself.
A new volume takes owner and mode from this directory of the image. The image's inputs, which the volume is named after,
hold the line that creates the directory, so no volume of an image without it is used."""
CACHES = {
    "XDG_CACHE_HOME": CACHE,  # torch's extensions and hub, Hugging Face
    "VLLM_CACHE_ROOT": f"{CACHE}/vllm",
    "FLASHINFER_WORKSPACE_BASE": HOME,
    "TRITON_CACHE_DIR": f"{CACHE}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/torchinductor",
    "TILELANG_CACHE_DIR": f"{CACHE}/tilelang",
    "TVM_FFI_CACHE_DIR": f"{CACHE}/tvm-ffi",
    "CUTE_DSL_CACHE_DIR": f"{CACHE}/cute-dsl",  # nvidia-cutlass-dsl
    "QUACK_CACHE_DIR": f"{CACHE}/quack",
    "CUDA_CACHE_PATH": f"{CACHE}/cuda",  # what the driver compiles from PTX
}
"""Where each package keeps what it compiles. By default Triton, TileLang and the driver use other directories of the
home; inductor, CuTe DSL and QuACK use /tmp: all lost with the container. Checked with the packages' own path functions
(FlashInfer 0.6.12, TileLang 0.1.15, CuTe DSL 4.8.1, QuACK 0.6.5), on an H100 with what they write (torch 2.11.0, Triton
3.6.0, driver), and for vLLM's image in tests/real/test_caches.py. TVM_FFI_CACHE_DIR is from tvm-ffi's source."""


def compilers(jobs: int) -> dict[str, str]:
    """Return the environment that holds an engine to `jobs` compilers at once."""
    return {**dict.fromkeys(LIMITS, str(jobs)), **SINGLE}
