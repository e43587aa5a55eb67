"""What a stage computes on: a Spark's GPU, or something that no rule about CUDA is for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from sparkops.lint.stages import BuildStage, StagedBuild

CUDA_IMAGE = re.compile(r"cuda|nvidia|nvcr\.io|vllm|sglang", re.IGNORECASE)
CUDA = re.compile(
    r"\+cu[0-9]{2,3}\b|\bcu1[0-9]{2}\b|/whl/cu[0-9]|TORCH_CUDA_ARCH_LIST|CUDA_HOME|nvidia/cuda", re.IGNORECASE
)
OTHER = re.compile(
    r"(?<![a-z])(rocm|amdgpu|amdsmi|ascend|cann|npu|habana|gaudi|hpu|xpu|oneapi|ipex|musa|tpu|neuronx?|s390x|ppc64le|zen)"
    r"(?![a-z])|intel.extension|/whl/cpu|(?<![a-z])l4t-|(?<![a-z])torch[^\s]*\+cpu|vllm[_-]cpu|VLLM_TARGET_DEVICE=cpu|requirements/cpu",
    re.IGNORECASE,
)
"""Other accelerators, CPUs, images or indexes for CPUs only, and images of Jetsons, whose torch has no +cuNNN."""


class _Named(NamedTuple):
    """What the image and platform at the bottom of a stage are, and whether it names CUDA or something else."""

    image: str
    cuda: bool
    other: bool


def cuda_stages(build: StagedBuild) -> list[BuildStage]:
    """Return the stages for CUDA. The image of a stage decides, then its variables, then the rest of the file."""
    platforms = {
        begin.line: " ".join(value for name, value in begin.flags if name == "platform")
        for begin in build.dockerfile.instructions
        if begin.keyword == "FROM"
    }
    named: dict[int, _Named] = {}
    for stage in build.stages:
        begun = named[stage.parent.line] if stage.parent else _Named("", cuda=False, other=False)
        image = begun.image or f"{stage.image} {platforms.get(stage.line, '')}"
        words = [image, *_words(stage)]
        cuda, other = begun.cuda or any(map(CUDA.search, words)), begun.other or any(map(OTHER.search, words))
        named[stage.line] = _Named(image, cuda, other)
    rest = any(each.cuda for each in named.values()) and not any(each.other for each in named.values())
    return [stage for stage in build.stages if _for_cuda(named[stage.line], rest=rest)]


def _for_cuda(named: _Named, *, rest: bool) -> bool:
    if OTHER.search(named.image) or CUDA_IMAGE.search(named.image):
        return not OTHER.search(named.image)
    return not named.other if named.cuda or named.other else rest


def _words(stage: BuildStage) -> Iterator[str]:
    """Yield the variables of the stage, with those that it begins with, and its own requirements as text."""
    yield from (f"{name}={value or ''}" for name, value in stage.values.items())
    for install in stage.installs:
        yield " ".join(install.requirements)
        yield " ".join(value for _, value in install.options)
