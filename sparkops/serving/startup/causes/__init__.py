"""The catalogue of causes of failed starts below the engines: one file a layer. Pure.

A cause is one object, sparkops.engines.causes.Cause, with a log in tests/captured. What an engine raises itself is in
its own folder of sparkops/engines. docs/causes.md is made from both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkops.engines import ENGINES, EngineName
from sparkops.engines.causes import Cause
from sparkops.serving.startup.causes import (
    compilers,
    docker,
    flashinfer,
    gloo,
    hub,
    kernel,
    nccl,
    packages,
    ray,
    safetensors,
    torch_cuda,
    transformers,
    triton,
)

LAYERS: Mapping[str, tuple[Cause, ...]] = {
    "NCCL and RDMA": nccl.CAUSES,
    "Gloo and rendezvous": gloo.CAUSES,
    "Ray": ray.CAUSES,
    "Triton": triton.CAUSES,
    "FlashInfer": flashinfer.CAUSES,
    "compilers at a start": compilers.CAUSES,
    "Transformers and tokenizers": transformers.CAUSES,
    "safetensors": safetensors.CAUSES,
    "hub": hub.CAUSES,
    "torch and CUDA": torch_cuda.CAUSES,
    "Python packages": packages.CAUSES,
    "kernel": kernel.CAUSES,
}
"""By layer, in the order in which they are asked; of two causes for one line the first counts."""
DOCKER = docker.CAUSES
"""Of the errors of Docker itself, which no log of a start has."""


def of(engine: EngineName) -> Iterator[Cause]:
    """Yield the causes that the log of an engine may show: its own, then those of the layers below it."""
    yield from ENGINES[engine].log.causes
    for causes in LAYERS.values():
        yield from causes
