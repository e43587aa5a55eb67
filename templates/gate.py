"""Say what an image is. Piped to `python -` inside it; the last line that it prints is one JSON object.

What cannot be imported is a finding, not an error. The questions are asked in a child, because a library made for
another processor ends the process that loads it.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
from collections.abc import Callable
from glob import glob
from importlib import import_module
from pathlib import Path

MARKERS = "/opt/sparkops/mods"
DRIVER = "libcuda.so.1"  # belongs to the host; an image that sees no GPU has at most the stub of its toolkit
STUBS = "/usr/local/cuda/lib64/stubs/libcuda.so", "/usr/local/cuda/targets/*/lib/stubs/libcuda.so"


def torch() -> dict[str, object]:
    """Its version, and the CUDA that its binaries are for: None is the CPU."""
    module = import_module("torch")
    return {"version": module.__version__, "cuda": module.version.cuda}


def vllm() -> dict[str, object]:
    """Its version."""
    return {"version": import_module("vllm").__version__}


def vllm_c() -> dict[str, object]:
    """Whether its binaries fit this torch: loading them resolves their symbols, with the stub where need be."""
    try:
        import_module("vllm._C")
    except ImportError as error:
        stubs = [path for pattern in STUBS for path in sorted(glob(pattern))]
        if DRIVER not in str(error) or not stubs:
            raise
        ctypes.CDLL(stubs[0], mode=ctypes.RTLD_GLOBAL)
        import_module("vllm._C")
        return {"stub": True}
    return {"stub": False}


QUESTIONS: tuple[Callable[[], dict[str, object]], ...] = (torch, vllm, vllm_c)


def ask() -> dict[str, dict[str, object]]:
    """The answers by name. A child that breaks off leaves its last words as the answer to that question."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        answer_all(writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as pipe:
        said = [line.strip() for line in pipe if line.strip()]
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    answers = {}
    for line in said:
        if line.startswith('{"answer": '):
            answers.update(json.loads(line)["answer"])
    words = f"ended by signal {-ended}" if ended < 0 else said[-1] if said else "no word"
    for question in QUESTIONS:
        if question.__name__ not in answers:
            answers[question.__name__] = {"error": words[:1000]}
            words = f"not asked, because of {question.__name__}"
    return answers


def answer_all(writing: int) -> None:
    """Answer into the pipe. An exception ends the child, and the last line of its traceback says what is wrong."""
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    for question in QUESTIONS:
        line = json.dumps({"answer": {question.__name__: question()}})
        os.write(writing, f"\n{line}\n".encode())


def markers() -> list[dict[str, object]]:
    """What the mods left behind."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(Path(MARKERS).glob("*.json"))]


def main() -> None:
    """Ask, and print."""
    where = {"python": platform.python_version(), "machine": platform.machine()}
    print(json.dumps({**where, **ask(), "mods": markers()}), flush=True)


main()
