"""Compare the facts of a built image with its recipe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import starmap
from types import MappingProxyType
from typing import Any

from sparkops.config.image import Torch
from sparkops.config.recipe import Recipe
from sparkops.engines import ENGINES
from sparkops.engines.runtime import USER

OVERRIDE = "set UV_OVERRIDE for every `uv pip install`, in every stage"
CPU_TORCH = f"a package without a pinned torch installed torch for the CPU; {OVERRIDE}"
REPLACED = f"a package without a pinned torch installed its own; {OVERRIDE}"
USED_CPU_TORCH = "this image has torch for the CPU; if that is meant, state `image.torch` with `backend: cpu`"
OTHER_CUDA = "torch is for another CUDA; check image.torch.backend and the index of the build"
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
OTHER_PROCESSOR = (
    "the code contains an instruction that this processor lacks (SIGILL); install a build for this processor"
)
CRASHED = "the process crashed while loading it; load it in the image by hand to see the reason"
KERNELS_OF_CUDA = "vLLM's kernels are for CUDA, and torch is the build for the CPU; install the torch of image.torch"
NO_TORCH = "torch cannot be imported: it is missing, or a dependency is incompatible"
NOT_LOADED = "a library that the kernels need is missing or incompatible"
NOT_IMPORTED = "vLLM cannot be imported: a dependency is missing or incompatible"
NO_CACHE = (
    "engines run as this user and need a cache for compiled kernels; end the template with `macros.finish`, which "
    "creates the user and its ~/.cache"
)
MOD_MISSING = "the image was built without the mod"
SPARK = frozenset({"sm_120", "sm_120f", "sm_121", "sm_121a", "sm_121f"})
"""Cubins that a GB10 (compute capability 12.1) runs: its own and those of 12.0, except sm_120a. Source: NVIDIA's CUDA
C++ programming guide, binary compatibility and architecture-specific features."""
ILLEGAL_INSTRUCTION = "signal 4"
UNSPECIFIED = "UnspecifiedPlatform"


@dataclass(frozen=True)
class ImportAnswer:
    """The version of one package, or the error of its import."""

    version: str = ""
    error: str = ""


@dataclass(frozen=True)
class KernelFacts:
    """vLLM's compiled modules (vllm._C), as the platform code of the image itself imported them."""

    platform: str = ""
    """The class that vLLM selected. Without a GPU it is UnspecifiedPlatform for CUDA; CudaPlatform is used then."""
    loaded: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The error by module, for modules that the image contains."""
    machines: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The architecture that the file of a failed module is for, such as aarch64; empty if it is unknown."""
    deleted: tuple[str, ...] = ()
    """Modules that were imported, are listed in the record of the installed wheel, and do not exist."""
    stub: bool = False
    """Whether they were loaded with a stub instead of the driver's library."""
    error: str = ""
    """The error of the platform code, or the end of the process; empty if it passed."""
    loading: str = ""
    """The module that was being loaded when the process ended; empty if there was none."""


@dataclass(frozen=True)
class DeviceCode:
    """The code for GPUs in one binary: the architectures (sm_120) of its cubins, and of its PTX."""

    cubins: frozenset[str]
    ptx: frozenset[str]

    @property
    def portable(self) -> bool:
        """Whether it is for more than one kind of GPU. vLLM calls a module for a single kind only on that one."""
        return bool(self.ptx) or len({name.rstrip("af") for name in self.cubins}) > 1


@dataclass(frozen=True)
class ImageFacts:
    machine: str
    torch: ImportAnswer
    cuda: str | None
    vllm: ImportAnswer
    kernels: KernelFacts
    mods: Mapping[str, str]
    """The outcome of each mod by its name."""
    archs: tuple[str, ...] = ()
    """The GPUs that torch has code for, in its own order."""
    device_code: Mapping[str, DeviceCode] | None = field(default_factory=dict)
    """By module of vLLM with GPU code; None if the image has no cuobjdump."""
    packages: tuple[str, ...] = ()
    """Installed packages, each as name==version, in order."""
    cache_error: str = ""
    """Why the engine's user cannot write to its cache; empty if it can."""

    @property
    def packages_digest(self) -> str:
        """SHA-256 over the packages. Images with the same digest have the same versions."""
        return hashlib.sha256("\n".join(self.packages).encode()).hexdigest()


@dataclass(frozen=True)
class GateVerdict:
    """The result of one check. `cause` is the usual cause of a failure."""

    name: str
    ok: bool
    found: str
    expected: str
    cause: str = ""

    def __str__(self) -> str:
        if self.ok:
            return f"{self.name}: {self.found}"
        return f"{self.name}: got {self.found}, expected {self.expected}: {self.cause}"


def parse(stdout: str) -> ImageFacts:
    """Parse the output of templates/gate.py. Raises ValueError for other text."""
    lines = stdout.strip().splitlines()
    try:
        printed = json.loads(lines[-1])
        return ImageFacts(
            machine=printed["machine"],
            torch=_answer(printed["torch"]),
            cuda=printed["torch"].get("cuda"),
            vllm=_answer(printed["vllm"]),
            kernels=_kernel_facts(printed["kernels"]),
            mods={mod["name"]: mod["outcome"] for mod in printed["mods"]},
            archs=tuple(printed["torch"].get("archs", ())),
            device_code=_device_code(printed["device_code"]),
            packages=tuple(printed["packages"]),
            cache_error=str(printed["cache_error"]),
        )
    except (IndexError, KeyError, TypeError, AttributeError, json.JSONDecodeError):
        raise ValueError(f"expected one JSON object on the last line, got {stdout[-500:]!r}") from None


def _answer(printed: Mapping[str, str]) -> ImportAnswer:
    return ImportAnswer(printed.get("version", ""), printed.get("error", ""))


def _kernel_facts(printed: Mapping[str, Any]) -> KernelFacts:
    failed = printed.get("failed", {})
    return KernelFacts(
        platform=printed.get("platform", ""),
        loaded=tuple(printed.get("loaded", ())),
        failed={name: failure["error"] for name, failure in failed.items()},
        machines={name: failure["machine"] for name, failure in failed.items()},
        deleted=tuple(printed.get("deleted", ())),
        stub=bool(printed.get("stub")),
        error=printed.get("error", "") or printed.get("problem", ""),
        loading=printed.get("loading", ""),
    )


def _device_code(libraries: Mapping[str, Mapping[str, list[str]]] | None) -> Mapping[str, DeviceCode] | None:
    if libraries is None:
        return None
    return {name: DeviceCode(frozenset(code["cubins"]), frozenset(code["ptx"])) for name, code in libraries.items()}


def verdicts(recipe: Recipe, facts: ImageFacts) -> tuple[GateVerdict, ...]:
    """Compare an image with its recipe. Parts that the recipe does not name are not checked."""
    image, error, on_gpu = recipe.image, facts.cache_error, recipe.backend != "cpu"
    python = ENGINES[recipe.engine].python
    return (
        *((_torch(image.torch, facts), _cuda(image.torch, facts)) if image.torch or python else ()),
        *((_vllm(image.vllm, facts.vllm), _kernels(facts, on_gpu=on_gpu)) if image.vllm or python else ()),
        *((_device(facts),) if (image.vllm or python) and on_gpu else ()),
        *(_mod(name, facts) for name in image.mods),
        GateVerdict("cache", not error, error or "writable", f"writable for user {USER}", NO_CACHE if error else ""),
    )


def _torch(torch: Torch | None, facts: ImageFacts) -> GateVerdict:
    """Compare torch. Builds of the package index have +cu130 only in torch.__version__, so it is ignored for them."""
    if torch is None:
        version, error = facts.torch.version, facts.torch.error
        return GateVerdict("torch", bool(version), version or error, "any version", "" if version else _no_torch(facts))
    expected = torch.pin.removeprefix("torch==")
    version = facts.torch.version
    same = version == expected or (not torch.local_version and _public(version) == torch.version)
    return GateVerdict("torch", same, version or facts.torch.error, expected, "" if same else _replaced(torch, facts))


def _no_torch(facts: ImageFacts) -> str:
    return _crash(facts.torch.error) or NO_TORCH


def _replaced(torch: Torch, facts: ImageFacts) -> str:
    if facts.torch.error:
        return _no_torch(facts)
    return CPU_TORCH if torch.cuda and facts.torch.version and facts.cuda is None else REPLACED


def _cuda(torch: Torch | None, facts: ImageFacts) -> GateVerdict:
    if torch is None:
        found, cause = facts.cuda or "none", "" if facts.cuda else USED_CPU_TORCH
        return GateVerdict("torch.version.cuda", bool(facts.cuda), found, "a build for CUDA", cause)
    cuda, expected = facts.cuda or "none", torch.cuda or "none"
    same = not facts.torch.error and cuda == expected
    cause = _replaced(torch, facts) if facts.cuda is None else OTHER_CUDA
    return GateVerdict("torch.version.cuda", same, cuda, expected, "" if same else cause)


def _vllm(requirement: str | None, answer: ImportAnswer) -> GateVerdict:
    expected = requirement.partition("==")[2] if requirement else "any version"
    same = answer.version == expected or _public(answer.version) == expected or (not requirement and not answer.error)
    cause = (
        _crash(answer.error) or NOT_IMPORTED if answer.error else "another package replaced the version of image.vllm"
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
        (bool(_crash(errors)), _crash(errors)),
        (bool(kernels.deleted), DELETED),
        (not on_gpu and kernels.platform == UNSPECIFIED, NO_PLATFORM),
        (not errors.strip() or absent, NO_KERNELS),
        (on_gpu and facts.cuda is None and not facts.torch.error, KERNELS_OF_CUDA),
        ("libcuda.so" in errors, NO_DRIVER),
        ("undefined symbol" in errors, OTHER_ABI),
        (bool(kernels.failed), NOT_LOADED),
    )
    return next((cause for applies, cause in causes if applies), NOT_IMPORTED)


def _crash(error: str) -> str:
    """Return the cause of a process that was ended by a signal; empty for any other error."""
    if "ended by signal" not in error:
        return ""
    return OTHER_PROCESSOR if ILLEGAL_INSTRUCTION in error else CRASHED


def _mod(name: str, facts: ImageFacts) -> GateVerdict:
    marker = facts.mods.get(name, "no marker")
    same = marker in ("applied", "already there")
    return GateVerdict(f"mod {name}", same, marker, "applied or already there", "" if same else MOD_MISSING)


def _public(version: str) -> str:
    return version.partition("+")[0]
