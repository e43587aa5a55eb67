"""The facts that templates/gate.py prints of an image, and the verdict of a check of them. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sparkops import foreign

OTHER_PROCESSOR = (
    "the code contains an instruction that this processor lacks (SIGILL); install a build for this processor"
)
CRASHED = "the process crashed while loading it; load it in the image by hand to see the reason"
ILLEGAL_INSTRUCTION = "signal 4"


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
class LlamaFacts:
    """llama.cpp's server: what it printed of itself, and its backend for CUDA."""

    version: str = ""
    error: str = ""
    """The end of what it printed where it could not be run; empty if it could."""
    arguments: frozenset[str] = frozenset()
    """The long names that its --help lists."""
    cuda: bool = False
    """Whether the backend's library exists."""
    cubins: frozenset[str] | None = None
    """The GPUs that it has code for, such as sm_121a; None if the image has no cuobjdump."""


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
    sgl_kernel: ImportAnswer = field(default_factory=ImportAnswer)
    """SGLang's kernels; empty if the image has none."""
    cache_error: str = ""
    """Why the engine's user cannot write to its cache; empty if it can."""
    llama: LlamaFacts | None = None
    """None in an image without llama-server."""

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


def crash(error: str) -> str:
    """Return the cause of a process that was ended by a signal; empty for any other error."""
    if "ended by signal" not in error:
        return ""
    return OTHER_PROCESSOR if ILLEGAL_INSTRUCTION in error else CRASHED


def public(version: str) -> str:
    """Return a version without its local part, such as +cu130."""
    return version.partition("+")[0]


def parse(stdout: str) -> ImageFacts:
    """Parse the output of templates/gate.py. Raises ValueError for other text."""
    lines = stdout.strip().splitlines()
    try:
        printed = foreign.loads(lines[-1])
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
            sgl_kernel=_answer(printed.get("sgl_kernel", {})),
            cache_error=str(printed["cache_error"]),
            llama=_llama(printed.get("llama")),
        )
    except (IndexError, KeyError, TypeError, AttributeError, ValueError):
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


def _llama(printed: Mapping[str, Any] | None) -> LlamaFacts | None:
    if printed is None:
        return None
    cubins = printed["cubins"]
    return LlamaFacts(
        version=printed["version"],
        error=printed["error"],
        arguments=frozenset(printed["arguments"]),
        cuda=printed["cuda"],
        cubins=None if cubins is None else frozenset(cubins),
    )


def _device_code(libraries: Mapping[str, Mapping[str, list[str]]] | None) -> Mapping[str, DeviceCode] | None:
    if libraries is None:
        return None
    return {name: DeviceCode(frozenset(code["cubins"]), frozenset(code["ptx"])) for name, code in libraries.items()}
