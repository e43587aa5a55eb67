"""The image gate of vLLM: its version, its kernels, and their code for the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap

from sparkops.engines.image_facts import DeviceCode, GateVerdict, ImageFacts, ImportAnswer, crash, public

NO_DRIVER = (
    "vLLM's kernels need the driver's library, and the image has no stub of it and no compiler to make one; use a "
    "-devel base, or add gcc to image.apt"
)
NO_KERNELS = "vLLM has no compiled part: a source tree, or a wheel for another platform, was installed"
DELETED = "the installed wheel of vLLM contained them, a later step removed them; install vLLM again after that step"
NO_PLATFORM = (
    "vLLM recognizes no platform, because the version in its metadata does not name a build for the CPU; add the mod "
    "vllm-cpu-metadata"
)
NO_CUBIN = (
    "PTX without a cubin for this GPU: the driver compiles it at the first start, or rejects it if it is older than "
    "the compiler (cudaErrorUnsupportedPtxVersion); build with TORCH_CUDA_ARCH_LIST=12.1a, or use a wheel with sm_120"
)
OTHER_GPU = "no code for this GPU; build with TORCH_CUDA_ARCH_LIST=12.1a, or use a wheel with sm_120"
OTHER_ABI = (
    "vLLM's binaries were built for another torch (ABI); use a vLLM that requires exactly image.torch, or build it "
    "with that torch"
)
OTHER_MACHINE = "the wheel is for another processor architecture; check the platform of the index or of image.vllm"
KERNELS_OF_CUDA = "vLLM's kernels are for CUDA, and torch is the build for the CPU; install the torch of image.torch"
NOT_LOADED = "a library that the kernels need is missing or incompatible"
NOT_IMPORTED = "vLLM cannot be imported: a dependency is missing or incompatible"
SPARK = frozenset({"sm_120", "sm_120f", "sm_121", "sm_121a", "sm_121f"})
"""Cubins that a GB10 (compute capability 12.1) runs: its own and those of 12.0, except sm_120a. Source: NVIDIA's CUDA
C++ programming guide, binary compatibility and architecture-specific features."""
UNSPECIFIED = "UnspecifiedPlatform"


def vllm_verdicts(facts: ImageFacts, requirement: str | None, *, on_gpu: bool) -> Iterator[GateVerdict]:
    """Yield the checks of an image with vLLM. `requirement`: the version that its recipe states."""
    yield _vllm(requirement, facts.vllm)
    yield _kernels(facts, on_gpu=on_gpu)
    if on_gpu:
        yield _device(facts)


def _vllm(requirement: str | None, answer: ImportAnswer) -> GateVerdict:
    expected = requirement.partition("==")[2] if requirement else "any version"
    same = answer.version == expected or public(answer.version) == expected or (not requirement and not answer.error)
    cause = (
        crash(answer.error) or NOT_IMPORTED if answer.error else "another package replaced the version of image.vllm"
    )
    return GateVerdict("vllm", same, answer.version or answer.error, expected, "" if same else cause)


def _kernels(facts: ImageFacts, *, on_gpu: bool) -> GateVerdict:
    """Check that vLLM's own platform code loads its kernels. vLLM itself starts without them and fails later."""
    kernels = facts.kernels
    problems = [f"{name}: {error}" for name, error in kernels.failed.items()]
    problems += [f"{name}: deleted" for name in kernels.deleted]
    if kernels.error and not problems:
        problems = [f"{kernels.loading}: {kernels.error}" if kernels.loading else kernels.error]
    if problems or not kernels.loaded:
        problem = "; ".join(problems) or "none"
        return GateVerdict(
            "vLLM kernels", ok=False, found=problem, expected="all loaded", cause=_not_loaded(facts, on_gpu=on_gpu)
        )
    names = ", ".join(kernels.loaded) + (", with a stub of the driver" if kernels.stub else "")
    return GateVerdict("vLLM kernels", ok=True, found=names, expected="all loaded")


def _device(facts: ImageFacts) -> GateVerdict:
    """Compare the GPU code of the kernels. PTX only is listed even where it is accepted: a first start takes longer."""
    name, expected = "GPU code", f"cubins that a GB10 runs: {', '.join(sorted(SPARK))}"
    if facts.device_code is None:
        return GateVerdict(name, ok=True, found="not checked: the image has no cuobjdump", expected=expected)
    if not facts.kernels.loaded:
        return GateVerdict(name, ok=True, found="not checked: no kernel was loaded", expected=expected)
    loaded = {module: facts.device_code[module] for module in facts.kernels.loaded if module in facts.device_code}
    usable = {module: code.cubins & SPARK for module, code in loaded.items() if code.cubins & SPARK}
    others = {module: code for module, code in loaded.items() if module not in usable}
    lacking = {module: code for module, code in others.items() if code.portable or not usable}
    if lacking or not usable:
        problem = "; ".join(starmap(_printed, lacking.items())) or "no code for GPUs"
        cause = NO_CUBIN if any(code.ptx for code in lacking.values()) else OTHER_GPU
        return GateVerdict(name, ok=False, found=problem, expected=expected, cause=cause)
    only_ptx = [module for module, code in facts.device_code.items() if code.ptx and not code.cubins & SPARK]
    parts = [f"{module}: {', '.join(sorted(cubins))}" for module, cubins in usable.items()]
    parts += [f"PTX only: {', '.join(only_ptx)}"] if only_ptx else []
    parts += [f"for other GPUs: {', '.join(others)}"] if others else []
    return GateVerdict(name, ok=True, found="; ".join(parts), expected=expected)


def _printed(name: str, code: DeviceCode) -> str:
    return f"{name}: cubins {', '.join(sorted(code.cubins)) or 'none'}, PTX {', '.join(sorted(code.ptx)) or 'none'}"


def _not_loaded(facts: ImageFacts, *, on_gpu: bool) -> str:
    """Return the usual cause, the most specific one first."""
    kernels = facts.kernels
    errors = "\n".join([kernels.error, *kernels.failed.values()])
    other_machine = any(machine and machine != facts.machine for machine in kernels.machines.values())
    absent = "No module named 'vllm." in kernels.error
    causes = (
        (other_machine, OTHER_MACHINE),
        (bool(crash(errors)), crash(errors)),
        (bool(kernels.deleted), DELETED),
        (not on_gpu and kernels.platform == UNSPECIFIED, NO_PLATFORM),
        (not errors.strip() or absent, NO_KERNELS),
        (on_gpu and facts.cuda is None and not facts.torch.error, KERNELS_OF_CUDA),
        ("libcuda.so" in errors, NO_DRIVER),
        ("undefined symbol" in errors, OTHER_ABI),
        (bool(kernels.failed), NOT_LOADED),
    )
    return next((cause for applies, cause in causes if applies), NOT_IMPORTED)
