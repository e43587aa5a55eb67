"""What is compiled for CUDA is compiled for the GPU of a Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sparkops.lint.calls import Call
from sparkops.lint.finding import Found
from sparkops.lint.platform import cuda_stages
from sparkops.lint.stages import BuildStage, BuildStep, StagedBuild, variables

SPARK = "12.1a"
RUNS = frozenset({"12.0", "12.0f", "12.1", "12.1a", "12.1f"})
"""Architectures whose code runs on the GPU of a Spark; code for 12.0a does not."""
LISTS = ("TORCH_CUDA_ARCH_LIST", "FLASHINFER_CUDA_ARCH_LIST")
CMAKE = ("CMAKE_CUDA_ARCHITECTURES", "CUDAARCHS")
CMAKE_VALUE = re.compile(r"CMAKE_CUDA_ARCHITECTURES(?::\w+)?=\"?([^\s\"']+)")
CMAKE_RUNS = re.compile(r"(12[01]f?|121a)(-real|-virtual)?|all|all-major|native|OFF", re.IGNORECASE)
NVCC_RUNS = re.compile(r"(sm|compute)_(120f?|121[af]?)(?![0-9a-z])|=all(-major)?$|\$")
FIX = f"ENV {LISTS[0]}={SPARK} in this stage, before this line"
NVCC_NAMES = re.compile(r"\.cu$|^-arch|gencode")
NO_COMPILER = re.compile(r"nvidia/cuda:[^ ]*-(base|runtime)")
ABOUT_CUDA = re.compile(r"cuda|nvidia|nvcr\.io|vllm|sglang", re.IGNORECASE)
SETUP = frozenset({"bdist_wheel", "build_ext", "develop", "install"})


def check(build: StagedBuild) -> Iterator[Found]:
    """Yield each list without a Spark, each such call of nvcc, and in each stage the first build without a list."""
    for stage in cuda_stages(build):
        yield from (slip for step in stage.steps for slip in _wrong_lists(build, step))
        compiling = [call for step in stage.steps for call in _compiling(stage, step) if not _told(call)]
        extensions = [call for call in compiling if call.program != "nvcc"]
        for call in (*(call for call in compiling if call.program == "nvcc"), *extensions[:1]):
            runs = f"stage {stage.name} compiles for CUDA ({' '.join(call.argv[:4])})"
            yield Found(call.line, f"{runs} without an architecture list, expected {LISTS[0]}={SPARK}", FIX)


def for_spark(architectures: str) -> bool:
    """Return whether a list such as 9.0a;12.1a has code that runs on a Spark. One that cannot be read has it."""
    return "$" in architectures or bool(RUNS & set(re.split(r"[;,\s]+", architectures.replace("+PTX", ""))))


def _cmake_for_spark(architectures: str) -> bool:
    return "$" in architectures or any(map(CMAKE_RUNS.fullmatch, re.split(r"[;,\s]+", architectures)))


def wrong_lists(environment: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yield the variables that name other architectures, each with what is wrong."""
    for name in LISTS:
        if (value := environment.get(name)) and not for_spark(value):
            yield name, f"{name}={value} has nothing that runs on a Spark, whose GPU is {SPARK}, expected {SPARK}"
    for name, value in environment.items():
        for given in [value or ""] if name in CMAKE else CMAKE_VALUE.findall(value or ""):
            if given and not _cmake_for_spark(given):
                yield name, f"{CMAKE[0]}={given} has nothing that runs on a Spark, whose GPU is 121a, expected 121a"


def _wrong_lists(build: StagedBuild, step: BuildStep) -> Iterator[Found]:
    if step.instruction.keyword in ("ARG", "ENV"):
        given = dict(variables(step.instruction, build.dockerfile.escape, step.values))
        for name, problem in wrong_lists(given):
            fix = f"{step.instruction.keyword} {name}={SPARK}" if name in LISTS else f"{CMAKE[0]}=121a"
            yield Found(step.instruction.line, problem, fix)
    for call in step.calls:
        changed = {name: value for name, value in call.environment.items() if step.values.get(name) != value}
        words = {"": " ".join(call.argv)} if call.program in ("cmake", "echo") or "-D" in " ".join(call.argv) else {}
        for name, problem in wrong_lists(changed | words):
            yield Found(call.line, problem, f"{name}={SPARK}" if name in LISTS else f"{CMAKE[0]}=121a")


def _compiling(stage: BuildStage, step: BuildStep) -> Iterator[Call]:
    """Yield the calls that build extensions for CUDA, as far as one can see from outside."""
    yield from (call for call in step.calls if call.program == "nvcc" and len(call.argv) > 2)
    if not ABOUT_CUDA.search(stage.root) or NO_COMPILER.search(stage.root):
        return
    yield from (install.call for install in step.installs if install.compiles or install.verb == "build")
    for call in step.calls:
        if call.program.startswith("python") and "setup.py" in call.argv and SETUP & set(call.argv):
            yield call


def _told(call: Call) -> bool:
    """Whether it knows an architecture: a list that is wrong is told where it is set."""
    if call.program == "nvcc":
        return bool(NVCC_RUNS.search(" ".join(call.argv))) or not any(map(NVCC_NAMES.search, call.argv))
    return any(call.environment.get(name) for name in LISTS[:1])
