"""Compare the facts of a built image with its recipe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkops.config.image import Torch
from sparkops.config.recipe import Recipe
from sparkops.engine.runtime import USER

OVERRIDE = "set UV_OVERRIDE for every `uv pip install`, in every stage"
CPU_TORCH = f"a package without a pinned torch installed torch for the CPU; {OVERRIDE}"
REPLACED = f"a package without a pinned torch installed its own; {OVERRIDE}"
OTHER_CUDA = "torch is for another CUDA; check image.torch.backend and the index of the build"
NO_DRIVER = (
    "vLLM's binaries need the driver's library, and the image has no stub of it and no compiler to make one; use a "
    "-devel base, or add gcc to image.apt"
)
NO_BINARIES = "vLLM has no compiled part: a source tree, or a wheel for another platform, was installed"
NO_CUBIN = (
    "PTX without a cubin for this GPU: the driver compiles it at the first start, or rejects it if it is older than "
    "the compiler (cudaErrorUnsupportedPtxVersion); build with TORCH_CUDA_ARCH_LIST=12.1a, or use a wheel with sm_120"
)
OTHER_ABI = (
    "vLLM's binaries were built for another torch (ABI); use a vLLM that requires exactly image.torch, or build it "
    "with that torch"
)
OTHER_PROCESSOR = "the binary crashed when loaded: it was built for another processor"
NOT_IMPORTED = "vLLM cannot be imported: a dependency is missing or incompatible"
NO_CACHE = (
    "engines run as this user and need a cache for compiled kernels; end the template with `macros.finish`, which "
    "creates the user and its ~/.cache"
)
MOD_MISSING = "the image was built without the mod"
SPARK = frozenset({"sm_120", "sm_120f", "sm_121", "sm_121a", "sm_121f"})
"""Cubins that a GB10 (compute capability 12.1) runs: its own and those of 12.0, except sm_120a. Source: NVIDIA's CUDA
C++ programming guide, binary compatibility and architecture-specific features."""
KERNELS = "_C", "_moe_C"
"""The binaries of vLLM that every model needs. Others are for other GPUs, or can be replaced on this one."""


@dataclass(frozen=True)
class ImportAnswer:
    """The version of one package, or the error of its import."""

    version: str = ""
    error: str = ""


@dataclass(frozen=True)
class DeviceCode:
    """The code for GPUs in one binary: the architectures (sm_120) of its cubins, and of its PTX."""

    cubins: frozenset[str]
    ptx: frozenset[str]


@dataclass(frozen=True)
class ImageFacts:
    machine: str
    torch: ImportAnswer
    cuda: str | None
    vllm: ImportAnswer
    binaries: ImportAnswer
    stub: bool
    """Whether vLLM's binaries were loaded with a stub instead of the driver's library."""
    mods: Mapping[str, str]
    """The outcome of each mod by its name."""
    archs: tuple[str, ...] = ()
    """The GPUs that torch has code for, in its own order."""
    device_code: Mapping[str, DeviceCode] | None = field(default_factory=dict)
    """By binary of vLLM with GPU code; None if the image has no cuobjdump."""
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
            binaries=_answer(printed["vllm_c"]),
            stub=bool(printed["vllm_c"].get("stub")),
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


def _device_code(libraries: Mapping[str, Mapping[str, list[str]]] | None) -> Mapping[str, DeviceCode] | None:
    if libraries is None:
        return None
    return {name: DeviceCode(frozenset(code["cubins"]), frozenset(code["ptx"])) for name, code in libraries.items()}


def verdicts(recipe: Recipe, facts: ImageFacts) -> tuple[GateVerdict, ...]:
    """Compare an image with its recipe. Parts that the recipe does not name are not checked."""
    image, error = recipe.image, facts.cache_error
    return (
        *((_torch(image.torch, facts), _cuda(image.torch, facts)) if image.torch else ()),
        *((_vllm(image.vllm, facts.vllm), _binaries(facts)) if image.vllm else ()),
        *((_kernels(facts.device_code),) if image.vllm and image.torch and image.torch.cuda else ()),
        *(_mod(name, facts) for name in image.mods),
        GateVerdict("cache", not error, error or "writable", f"writable for user {USER}", NO_CACHE if error else ""),
    )


def _torch(torch: Torch, facts: ImageFacts) -> GateVerdict:
    """Compare torch. Builds of the package index have +cu130 only in torch.__version__, so it is ignored for them."""
    expected = torch.pin.removeprefix("torch==")
    version = facts.torch.version
    same = version == expected or (not torch.local_version and _public(version) == torch.version)
    return GateVerdict("torch", same, version or facts.torch.error, expected, "" if same else _replaced(torch, facts))


def _replaced(torch: Torch, facts: ImageFacts) -> str:
    return CPU_TORCH if torch.cuda and facts.torch.version and facts.cuda is None else REPLACED


def _cuda(torch: Torch, facts: ImageFacts) -> GateVerdict:
    cuda, expected = facts.cuda or "none", torch.cuda or "none"
    same = not facts.torch.error and cuda == expected
    cause = _replaced(torch, facts) if facts.cuda is None else OTHER_CUDA
    return GateVerdict("torch.version.cuda", same, cuda, expected, "" if same else cause)


def _vllm(requirement: str, answer: ImportAnswer) -> GateVerdict:
    expected = requirement.partition("==")[2]
    same = answer.version == expected or _public(answer.version) == expected
    cause = NOT_IMPORTED if answer.error else "another package replaced the version of image.vllm"
    return GateVerdict("vllm", same, answer.version or answer.error, expected, "" if same else cause)


def _binaries(facts: ImageFacts) -> GateVerdict:
    error = facts.binaries.error
    loaded = error or ("importable, with a stub of the driver" if facts.stub else "importable")
    return GateVerdict("vllm._C", not error, loaded, "importable", _why_not_loaded(error))


def _kernels(code: Mapping[str, DeviceCode] | None) -> GateVerdict:
    """Compare GPU code. Binaries with PTX only are listed even if accepted, because a first start takes longer."""
    name, expected = "GPU code", f"cubins that a GB10 runs: {', '.join(sorted(SPARK))}"
    if code is None:
        return GateVerdict(name, ok=True, found="not checked: the image has no cuobjdump", expected=expected)
    needed = {library: kernels for library, kernels in code.items() if library.startswith(KERNELS)}
    lacking = [_printed(library, kernels) for library, kernels in needed.items() if not kernels.cubins & SPARK]
    if lacking or not needed:
        problem = "; ".join(lacking) or f"no code for GPUs in {', '.join(KERNELS)}"
        return GateVerdict(name, ok=False, found=problem, expected=expected, cause=NO_CUBIN if lacking else NO_BINARIES)
    cubins = "; ".join(f"{library}: {', '.join(sorted(kernels.cubins & SPARK))}" for library, kernels in needed.items())
    only_ptx = ", ".join(library for library, kernels in code.items() if kernels.ptx and not kernels.cubins & SPARK)
    cubins += f"; PTX only: {only_ptx}" if only_ptx else ""
    return GateVerdict(name, ok=True, found=cubins, expected=expected)


def _printed(name: str, code: DeviceCode) -> str:
    return f"{name}: cubins {', '.join(sorted(code.cubins)) or 'none'}, PTX {', '.join(sorted(code.ptx)) or 'none'}"


def _why_not_loaded(error: str) -> str:
    if not error:
        return ""
    if "libcuda.so" in error:
        return NO_DRIVER
    if "signal" in error:
        return OTHER_PROCESSOR
    if "No module named 'vllm._C'" in error:
        return NO_BINARIES
    return OTHER_ABI if "undefined symbol" in error else NOT_IMPORTED


def _mod(name: str, facts: ImageFacts) -> GateVerdict:
    marker = facts.mods.get(name, "no marker")
    same = marker in ("applied", "already there")
    return GateVerdict(f"mod {name}", same, marker, "applied or already there", "" if same else MOD_MISSING)


def _public(version: str) -> str:
    return version.partition("+")[0]
