"""Packages that require torch, with the required versions, from metadata of 22 and 25 November 2026.

`python -m tests.lint.torch_metadata` prints REQUIRES from the metadata of wheels for Python 3.12 on aarch64, or of the
newest release if a package has no such wheel; UNREAD have none on the index. With `vllm==0.23.0` it prints the
requirement of one release, from which RELEASES was made.
"""

from __future__ import annotations

import re

REQUIRES = """
accelerate 1.15.0 torch>=2.0.0
amdsmi 7.0.2
apache-tvm-ffi 0.1.15.post2
auto-round 0.16.1 torch
bitsandbytes 0.50.2 torch<3,>=2.4
compressed-tensors 0.20.0 torch>=2.10.0
conch-triton-kernels 1.3
deepspeed 0.19.8 torch>=2.0.0
diffusers 0.42.1
fastsafetensors 0.5.0
flash-attn 2.8.3.post2 torch
flashinfer-cubin 0.6.13
flashinfer-python 0.7.2.post1 torch
gptqmodel 7.7.0 torch>=2.14.1
humming-kernels 0.1.19 torch>=2.7
huggingface-hub 2.4.0
instanttensor 0.2.2 torch>=2.8.0
kt-kernel 0.7.2 torch==2.9.1
llmcompressor 0.14.0.1 torch<=2.14.1,>=2.10.0
lmcache 0.5.6 torch
lmdeploy 0.18.0 torch<=2.12.1,>=2.0.0
mistral-common 1.13.1
modelscope 1.40.2
mooncake-transfer-engine 0.3.13.post1
nixl 1.5.1
nvidia-cutlass-dsl 4.8.1
nvidia-nccl-cu13 2.32.3
nvidia-nvshmem-cu13 3.8.0
optimum 2.3.0 torch>=1.11
outlines 1.3.3
peft 0.21.2 torch>=1.13.0
runai-model-streamer 0.17.0 torch<3.0.0,>=2.0.0
sentence-transformers 6.2.0 torch>=2.2
sgl-kernel 0.3.21
sglang 0.5.23 torch==2.14.1
sglang-kernel 0.4.10 torch==2.14.1
tensorizer 2.12.1 torch>=1.9.0
tensorrt-llm 1.2.1 torch<=2.10.0a0,>=2.9.1
tilelang 0.1.15 torch
timm 1.0.31 torch
torch-tensorrt 2.14.0 torch<2.15.0,>=2.14.0
torchaudio 2.11.0
torchsde 0.2.6 torch>=1.6.0
torchvision 0.29.2 torch>=2.14.0
transformers 5.23.0
vllm 0.33.0 torch==2.14.0
xformers 0.0.35 torch>=2.10
xgrammar 0.2.8 torch>=1.10.0
"""
"""One package a line: name, version, and the requirement of torch without extras, if any."""
RELEASES = {
    "sglang": "0.4.6 2.6.0, 0.4.7 2.7.1, 0.5.1 2.8.0, 0.5.6 2.9.1, 0.5.11 2.11.0, 0.5.16 ?",
    "vllm": "0.2.7 2.1.2, 0.4.1 ?, 0.4.3 2.3.0, 0.5.1 ?, 0.5.4 2.4.0, 0.6.4 2.5.1, "
    "0.8.0 2.6.0, 0.9.0 2.7.0, 0.10.0 2.7.1, 0.10.2 2.8.0, 0.11.1 2.9.0, 0.14.0 2.9.1, "
    "0.17.0 2.10.0, 0.20.0 2.11.0, 0.27.0 2.13.0, 0.33.0 2.14.0, 0.33.1 ?",
    "xformers": "0.0.28 2.4.1, 0.0.28.post1 ?, 0.0.28.post3 2.5.1, 0.0.29 ?, "
    "0.0.29.post3 2.6.0, 0.0.30 2.7.0, 0.0.31 2.7.1, 0.0.32 2.8.0, 0.0.33 2.9.0, 0.0.34 ?",
}
"""The version of torch that releases require: each one counts up to the next; ?: unknown."""
UNREAD = frozenset({"deep-ep", "deep-gemm", "flash-attn-3", "flashinfer", "lightllm"})
"""Packages that require torch according to their projects."""
UNREAD_WITHOUT = frozenset(
    {"flashinfer-jit-cache", "hf-transfer", "opencv-python-headless", "pyarrow", "ray", "safetensors", "triton"}
    | {"triton-kernels"}
)
"""Packages that do not require torch according to their projects."""
BOUND_BEFORE = frozenset({"ktransformers", "torchvision", "xformers"})
"""Packages whose other releases require one version, or that require it through another package."""


VERSIONS = {name: "".join(versions) for name, _, *versions in map(str.split, REQUIRES.strip().splitlines())}
NEEDS_TORCH = frozenset(name for name, versions in VERSIONS.items() if versions) | UNREAD | BOUND_BEFORE
NO_TORCH = (frozenset(VERSIONS) | UNREAD_WITHOUT) - NEEDS_TORCH
BINDS = re.compile(r"==|<(?!=?3)")
"""In a requirement: only certain versions do."""
BOUND = BOUND_BEFORE | {name for name, versions in VERSIONS.items() if BINDS.search(versions)}
"""Packages that require certain versions of torch: only they replace an installed torch."""
COMPILED = frozenset(
    {"apex", "causal-conv1d", "deep-ep", "deep-gemm", "deepep", "deepgemm", "ktransformers"}
    | {"lmcache", "lmdeploy", "mamba", "mamba-ssm", "sageattention", "sgl-kernel"}
    | {"torchaudio", "torchvision", "vllm", "vllm-flash-attn", "xformers"}
)
"""Packages with code for CUDA that is compiled for TORCH_CUDA_ARCH_LIST when they are built from source."""
NUMBERS = re.compile(r"v?([0-9]+(?:\.[0-9]+)*)((?:\.?post[0-9]+)?)(?:\+.*)?")


def release(version: str) -> tuple[int, ...] | None:
    """Return a version as numbers, without its build; None for a version before a release, or an unknown one."""
    match = NUMBERS.fullmatch(version)
    return tuple(map(int, re.findall("[0-9]+", match[1] + match[2]))) if match else None


def required(name: str, version: str) -> str | None:
    """Return what a package requires of torch, such as `torch==2.11.0`; None if unknown.

    Without a version it is the newest one.
    """
    if not version:
        return VERSIONS.get(name)
    numbers = release(version)
    if numbers and name == "torchvision" and numbers[0] == 0 and len(numbers) > 1:
        return f"torch==2.{numbers[1] - 15}"
    torch = "?"
    for since, follows in map(str.split, filter(None, RELEASES.get(name, "").split(", "))):
        torch = follows if numbers and numbers >= (release(since) or ()) else torch
    return None if torch == "?" else f"torch=={torch}"


def admits(requirement: str, version: str) -> bool:
    """Return whether a requirement such as `torch<3,>=2.4` admits a version; an unknown version only without limits."""
    numbers = release(version)
    for sign, limit in re.findall(r"([=<>!]=|[<>])([0-9.]+)", requirement):
        wanted = release(limit.rstrip(".")) or ()
        if numbers is None:
            return False
        shorter = min(len(numbers), len(wanted))  # an image for torch 2.6 has any release of 2.6
        same = numbers[:shorter] == wanted[:shorter]
        holds = {"==": same, "!=": not same, ">=": numbers >= wanted or same, "<=": numbers <= wanted or same}
        if not holds.get(sign, numbers < wanted if sign == "<" else numbers > wanted):
            return False
    return True
