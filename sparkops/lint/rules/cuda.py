"""Find stages for CUDA, and check that code compiled there runs on the GPU of a Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sparkops.lint.dockerfile import BuildStage, BuildStep, StagedBuild, variables
from sparkops.lint.finding import Violation
from sparkops.lint.shell import Call

SPARK = "12.1a"
RUNS = frozenset({"12.0", "12.0f", "12.1", "12.1a", "12.1f"})
"""Architectures whose code runs on the GPU of a Spark. Code for 12.0a does not."""
LISTS = ("TORCH_CUDA_ARCH_LIST", "FLASHINFER_CUDA_ARCH_LIST")
FLASH_ATTN = "FLASH_ATTN_CUDA_ARCHS"
"""The list of flash-attn, which reads no other one and compiles for 120 without it."""
CMAKE = ("CMAKE_CUDA_ARCHITECTURES", "CUDAARCHS")
CMAKE_VALUE = re.compile(r"CMAKE_CUDA_ARCHITECTURES(?::\w+)?=\"?([^\s\"']+)")
CMAKE_RUNS = re.compile(r"(12[01]f?|121a)(-real|-virtual)?|all|all-major|native|OFF", re.IGNORECASE)
NVCC_RUNS = re.compile(r"(sm|compute)_(120f?|121[af]?)(?![0-9a-z])|=all(-major)?$|\$")
SEPARATOR = re.compile(r"[;,\s]+")
"""Between the architectures of a list such as 9.0a;12.1a."""
FIX = f"ENV {LISTS[0]}={SPARK} in this stage, before this line"
NVCC_NAMES = re.compile(r"\.cu$|^-arch|gencode")
SETS_LIST = re.compile(r"nvcr\.io/nvidia/(nemo|pytorch|sglang|tensorrt-llm|tritonserver|vllm)")
"""NVIDIA's framework images, whose environment has a list that ends in 12.0+PTX."""
NO_COMPILER = re.compile(r"nvidia/cuda:[^ ]*-(base|runtime)")
SETUP = frozenset({"bdist_wheel", "build_ext", "develop", "install"})
CUDA_IMAGE = re.compile(r"cuda|nvidia|nvcr\.io|vllm|sglang", re.IGNORECASE)
CUDA = re.compile(
    r"\+cu[0-9]{2,3}\b|\bcu1[0-9]{2,3}\b|/whl/cu[0-9]|TORCH_CUDA_ARCH_LIST|CUDA_HOME|nvidia/cuda", re.IGNORECASE
)
OTHER = re.compile(
    r"(?<![a-z])(rocm|amdgpu|amdsmi|ascend|cann|npu|habana|gaudi|hpu|xpu|oneapi|ipex|musa|tpu|neuronx?|s390x|ppc64le|zen)"
    r"(?![a-z])|intel.extension|/whl/cpu|(?<![a-z])l4t-|(?<![a-z])torch[^\s]*\+cpu|vllm[_-]cpu|VLLM_TARGET_DEVICE=cpu|requirements/cpu",
    re.IGNORECASE,
)
"""Other accelerators, images and indexes for CPUs only, and images of Jetsons, whose torch has no +cuNNN."""


class _Platform(NamedTuple):
    """The image and platform of a stage's lineage, and whether the stage mentions CUDA or another accelerator."""

    image: str
    cuda: bool
    other: bool


def cuda_stages(build: StagedBuild) -> list[BuildStage]:
    """Return the stages for CUDA. The image of a stage decides, then its variables, then the rest of the file."""
    flags = {
        instruction.line: " ".join(value for name, value in instruction.flags if name == "platform")
        for instruction in build.dockerfile.instructions
        if instruction.keyword == "FROM"
    }
    platforms: dict[int, _Platform] = {}
    for stage in build.stages:
        parent = platforms[stage.parent.line] if stage.parent else _Platform("", cuda=False, other=False)
        image = parent.image or f"{stage.image} {flags.get(stage.line, '')}"
        words = [image, *_words(stage)]
        cuda, other = parent.cuda or any(map(CUDA.search, words)), parent.other or any(map(OTHER.search, words))
        platforms[stage.line] = _Platform(image, cuda, other)
    named = platforms.values()
    default = any(platform.cuda for platform in named) and not any(platform.other for platform in named)
    return [stage for stage in build.stages if _is_for_cuda(platforms[stage.line], default=default)]


def _is_for_cuda(platform: _Platform, *, default: bool) -> bool:
    if OTHER.search(platform.image) or CUDA_IMAGE.search(platform.image):
        return not OTHER.search(platform.image)
    return not platform.other if platform.cuda or platform.other else default


def _words(stage: BuildStage) -> Iterator[str]:
    """Yield the variables of the stage, also inherited ones, and its own requirements as text."""
    yield from (f"{name}={value or ''}" for name, value in stage.values.items())
    for install in stage.installs:
        yield " ".join(install.requirements)
        yield " ".join(value for _, value in install.options)


def check(build: StagedBuild) -> Iterator[Violation]:
    """Yield lists and calls of nvcc without an architecture of a Spark, and each stage's first build without a list."""
    for stage in cuda_stages(build):
        yield from (violation for step in stage.steps for violation in _wrong_lists(build, step))
        compiling = [call for step in stage.steps for call in _compiling(stage, step) if not _has_list(call)]
        extensions = [call for call in compiling if call.program != "nvcc"]
        for call in (*(call for call in compiling if call.program == "nvcc"), *extensions[:1]):
            runs = f"stage {stage.name} compiles for CUDA ({' '.join(call.argv[:4])})"
            yield Violation(call.line, f"{runs} without an architecture list, expected {LISTS[0]}={SPARK}", FIX)


def wrong_lists(environment: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yield each variable without an architecture of a Spark, with the problem. One with a variable is not judged."""
    for name in LISTS:
        value = environment.get(name)
        if value and "$" not in value and not RUNS & set(SEPARATOR.split(value.replace("+PTX", ""))):
            yield name, f"{name}={value} has no architecture of a Spark's GPU, expected {SPARK}"
    if (value := environment.get(FLASH_ATTN)) and "$" not in value and "120" not in SEPARATOR.split(value):
        yield FLASH_ATTN, f"{FLASH_ATTN}={value} has no architecture of a Spark's GPU, expected 120"
    for name, value in environment.items():
        for listed in [value or ""] if name in CMAKE else CMAKE_VALUE.findall(value or ""):
            if listed and "$" not in listed and not any(map(CMAKE_RUNS.fullmatch, SEPARATOR.split(listed))):
                yield name, f"{CMAKE[0]}={listed} has no architecture of a Spark's GPU, expected 121a"


def _wrong_lists(build: StagedBuild, step: BuildStep) -> Iterator[Violation]:
    if step.instruction.keyword in ("ARG", "ENV"):
        for name, problem in wrong_lists(dict(variables(step.instruction, build.dockerfile.escape, step.values))):
            yield Violation(step.instruction.line, problem, f"{step.instruction.keyword} {_fix(name)}")
    exported: set[str] = set()
    for call in step.calls:
        changed = {name: value for name, value in call.environment.items() if step.values.get(name) != value}
        words = {"": " ".join(call.argv)} if call.program in ("cmake", "echo") or "-D" in " ".join(call.argv) else {}
        for name, problem in wrong_lists(changed | words):
            if problem not in exported:
                yield Violation(call.line, problem, _fix(name))
            exported |= {problem} if name in changed else set()


def _fix(name: str) -> str:
    return f"{name}={SPARK}" if name in LISTS else f"{FLASH_ATTN}=120" if name == FLASH_ATTN else f"{CMAKE[0]}=121a"


def _compiling(stage: BuildStage, step: BuildStep) -> Iterator[Call]:
    """Yield the calls that build extensions for CUDA, known by program, requirement or verb."""
    yield from (call for call in step.calls if call.program == "nvcc" and len(call.argv) > 2)
    if not CUDA_IMAGE.search(stage.root) or NO_COMPILER.search(stage.root) or SETS_LIST.search(stage.root):
        return
    yield from (install.call for install in step.installs if install.compiles or install.verb == "build")
    for call in step.calls:
        if call.program.startswith("python") and "setup.py" in call.argv and SETUP & set(call.argv):
            yield call


def _has_list(call: Call) -> bool:
    """Return whether a call has a list of architectures. A wrong list is reported where it is set."""
    if call.program == "nvcc":
        return bool(NVCC_RUNS.search(" ".join(call.argv))) or not any(map(NVCC_NAMES.search, call.argv))
    return bool(call.environment.get(LISTS[0]))
