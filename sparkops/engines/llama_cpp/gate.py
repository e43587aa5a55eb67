"""The image gate of llama.cpp: its server runs, and its backend for CUDA has code for a Spark's GPU."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.engines.image_facts import GateVerdict, ImageFacts

SPARK = frozenset({"sm_120", "sm_120f", "sm_121", "sm_121a", "sm_121f"})
"""Code that runs on the GPU of a Spark (compute capability 12.1)."""
NO_SERVER = "the image has no llama-server; build it with the template llama-cpp, or add it to PATH"
BROKEN = "llama-server cannot be run in this image"
NO_BACKEND = "llama.cpp was compiled for the CPU only: set image.backend, or compile it with GGML_CUDA=ON"
NOT_COMPILED = "no code for this GPU; compile it with CMAKE_CUDA_ARCHITECTURES=121a-real"


def llama_cpp_verdicts(facts: ImageFacts, requirement: str | None, *, on_gpu: bool) -> Iterator[GateVerdict]:  # noqa: ARG001
    """Yield the verdict on llama-server and, for a GPU, on its backend for CUDA."""
    llama = facts.llama
    if llama is None:
        yield GateVerdict("llama-server", ok=False, found="none", expected="any version", cause=NO_SERVER)
        return
    found = llama.error or llama.version
    yield GateVerdict("llama-server", not llama.error, found, "any version", BROKEN if llama.error else "")
    if not on_gpu:
        return
    if not llama.cuda:
        yield GateVerdict("CUDA backend", ok=False, found="none", expected="libggml-cuda.so", cause=NO_BACKEND)
    elif llama.cubins is None:
        yield GateVerdict("CUDA backend", ok=True, found="libggml-cuda.so", expected="libggml-cuda.so")
    else:
        ok, listed = bool(SPARK & llama.cubins), ", ".join(sorted(llama.cubins)) or "none"
        yield GateVerdict("CUDA backend", ok, listed, "code for sm_121a", "" if ok else NOT_COMPILED)
