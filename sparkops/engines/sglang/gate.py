"""The image gate of SGLang: its version, and the package of its kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkops.engines.image_facts import GateVerdict, ImageFacts, crash

NO_SGLANG = "no package sglang is installed in the image's Python; use an image of SGLang"
NO_KERNELS = "SGLang's kernels are a package of their own; install the sglang-kernel that this SGLang requires"
NO_DRIVER = (
    "the kernels need the driver's library, and the image has no stub of it and no compiler to make one; use an image "
    "with the CUDA toolkit"
)
OTHER_TORCH = "the kernels were built for another torch or CUDA; install the sglang-kernel that this SGLang requires"
KERNELS_OF_CUDA = "the kernels are for CUDA, and torch is the build for the CPU"
KERNELS = ("sglang-kernel", "sgl-kernel")
"""Newer and older name of the package with the module sgl_kernel."""


def sglang_verdicts(
    facts: ImageFacts,
    requirement: str | None,  # noqa: ARG001 - a recipe states the version by the digest of its image
    *,
    on_gpu: bool,
) -> Iterator[GateVerdict]:
    """Yield the checks of an image with SGLang, whose version a recipe states by its digest only."""
    installed = dict(package.split("==", 1) for package in facts.packages)
    version = installed.get("sglang", "")
    yield GateVerdict("sglang", bool(version), version or "not installed", "any version", "" if version else NO_SGLANG)
    if on_gpu:
        yield _kernels(facts, installed)


def _kernels(facts: ImageFacts, installed: Mapping[str, str]) -> GateVerdict:
    """Check that `import sgl_kernel` passes. Without a GPU it loads the library of sm_100, as on a GB10.

    sgl_kernel/load_utils.py of sglang-kernel 0.4.10 knows that library and one of sm_90, and no other.
    """
    package = next((f"{name} {installed[name]}" for name in KERNELS if name in installed), "")
    answer = facts.sgl_kernel
    if package and not answer.error:
        return GateVerdict("SGLang kernels", ok=True, found=package, expected="loaded")
    found = answer.error or "not installed"
    return GateVerdict("SGLang kernels", ok=False, found=found, expected="loaded", cause=_cause(facts, package))


def _cause(facts: ImageFacts, package: str) -> str:
    """Return the usual cause, the most specific one first."""
    error = facts.sgl_kernel.error
    causes = (
        (not package, NO_KERNELS),
        (bool(crash(error)), crash(error)),
        (facts.cuda is None and not facts.torch.error, KERNELS_OF_CUDA),
        ("libcuda.so" in error, NO_DRIVER),
    )
    return next((cause for applies, cause in causes if applies), OTHER_TORCH)
