"""Packages that require torch, with the required versions, from metadata of 22 November 2026.

`python -m tests.lint.torch_metadata` prints REQUIRES from the metadata of wheels for Python 3.12 on aarch64, or of the
newest release if a package has no such wheel; UNREAD have none on the index.
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
BOUND = BOUND_BEFORE | {name for name, versions in VERSIONS.items() if re.search(r"==|<(?!=?3)", versions)}
"""Packages that require certain versions of torch: only they replace an installed torch."""
COMPILED = frozenset(
    {"apex", "causal-conv1d", "deep-ep", "deep-gemm", "deepep", "deepgemm", "flash-attention"}
    | {"flash-attn", "ktransformers", "lmcache", "lmdeploy", "mamba", "mamba-ssm", "sageattention", "sgl-kernel"}
    | {"torchaudio", "torchvision", "vllm", "vllm-flash-attn", "xformers"}
)
"""Packages with code for CUDA that is compiled when they are built from source."""
