"""What is compiled for CUDA is compiled for the GPU of a Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sparkops.lint.calls import Call
from sparkops.lint.finding import Found
from sparkops.lint.stages import Build, Stage, Step, variables

SPARK = "12.1a"
LISTS = ("TORCH_CUDA_ARCH_LIST", "FLASHINFER_CUDA_ARCH_LIST")
FIX = f"ENV {LISTS[0]}={SPARK} in this stage, before this line"
ABOUT_CUDA = re.compile(r"cuda|nvidia|nvcr\.io|vllm|sglang|\+cu[0-9]|\bcu1[0-9]{2}\b", re.IGNORECASE)
SOURCE = re.compile(r"(?!.*\.whl)\.{1,2}(/.*)?|.*git\+.*|.*\.tar\.gz")
"""A requirement that has to be built: a directory, a repository, a source archive."""
SETUP = frozenset({"bdist_wheel", "build_ext", "develop", "install"})


def check(build: Build) -> Iterator[Found]:
    """Each list without a Spark, and in each stage the first call that compiles for CUDA without a list."""
    for stage in build.stages:
        yield from (found for step in stage.steps for found in _wrong_lists(build, step))
        compiling = (call for step in stage.steps for call in _compiling(stage, step))
        if call := next((each for each in compiling if not _told(each)), None):
            runs = f"stage {stage.name} compiles for CUDA ({' '.join(call.argv[:4])})"
            yield Found(call.line, f"{runs} without an architecture list, expected {LISTS[0]}={SPARK}", FIX)


def for_spark(architectures: str) -> bool:
    """Whether a list such as 9.0a;12.1a has the GPU of a Spark. One that cannot be read has it."""
    return "$" in architectures or SPARK in re.split(r"[;,\s]+", architectures.replace("+PTX", ""))


def wrong_lists(environment: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """The variables that name other architectures, each with what is wrong."""
    for name in LISTS:
        if (value := environment.get(name)) and not for_spark(value):
            yield name, f"{name}={value} has no {SPARK}, which is the GPU of a Spark, expected {SPARK}"


def _wrong_lists(build: Build, step: Step) -> Iterator[Found]:
    if step.instruction.keyword in ("ARG", "ENV"):
        given = dict(variables(step.instruction, build.dockerfile.escape, step.values))
        for name, problem in wrong_lists(given):
            yield Found(step.instruction.line, problem, f"{step.instruction.keyword} {name}={SPARK}")
    for call in step.calls:
        changed = {name: value for name, value in call.environment.items() if step.values.get(name) != value}
        for name, problem in wrong_lists(changed):
            yield Found(call.line, problem, f"{name}={SPARK}")


def _compiling(stage: Stage, step: Step) -> Iterator[Call]:
    """The calls that build extensions for CUDA, as far as one can see from outside."""
    yield from (call for call in step.calls if call.program == "nvcc" and len(call.argv) > 2)
    told = " ".join([stage.root, *(value or "" for value in step.values.values())])
    if not ABOUT_CUDA.search(told):
        return
    for install in step.installs:
        built = install.option("--editable", "--no-build-isolation") or any(map(SOURCE.fullmatch, install.requirements))
        if install.verb in ("build", "wheel") or built:
            yield install.call
    for call in step.calls:
        if call.program.startswith("python") and "setup.py" in call.argv and SETUP & set(call.argv):
            yield call


def _told(call: Call) -> bool:
    """Whether it knows an architecture: a list that is wrong is told where it is set."""
    if call.program == "nvcc":
        return bool(re.search(r"(sm|compute)_12", " ".join(call.argv)))
    return any(call.environment.get(name) for name in LISTS[:1])
