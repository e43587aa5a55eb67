"""Whether an engine whose recipe is for a GPU computes on it, or silently on the CPU. Its reading is pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparkops.config.recipe import Recipe
from sparkops.engines import ENGINES
from sparkops.swap.model import Answer

FILES = ("sh", "-c", "ls -l /proc/[0-9]*/fd 2>/dev/null; echo done")
"""In a container: prints the open files of its processes. It needs nothing of the image but a shell and `ls`."""
GPU_FILE = re.compile(r" -> /dev/nvidia\d")
"""A file that a CUDA context holds open; a process without one has at most /dev/nvidiactl."""
LAYERS = re.compile(r"offloaded (\d{1,6})/(\d{1,6}) layers to GPU")
"""llama.cpp's src/llama-model.cpp, printed with `verbosity: 4`."""


def wanted(recipe: Recipe) -> bool:
    """Return whether a recipe is to compute on a GPU only: it names neither a CPU build nor layers for the CPU."""
    return recipe.backend != "cpu" and not any(
        flag in recipe.serve.args and _leaves(recipe.serve.args[flag], values)
        for flag, values in ENGINES[recipe.engine].on_cpu.items()
    )


def _leaves(value: object, values: frozenset[str]) -> bool:
    return not values or str(value) in values


def used(listed: str) -> Answer:
    """Return whether processes of a container hold a GPU, from the output of FILES; UNKNOWN where it is no listing."""
    if not listed.rstrip().endswith("done") or " -> " not in listed:
        return Answer.UNKNOWN
    return Answer.YES if GPU_FILE.search(listed) else Answer.NO


def left_out(lines: Iterable[str]) -> str:
    """Return how many layers are not on the GPU, as far as a log says it; empty if all are, or it says nothing."""
    found = [match for line in lines if (match := LAYERS.search(line))]
    if found and int(found[-1][1]) < int(found[-1][2]):
        return f"{found[-1][1]} of {found[-1][2]} layers are on the GPU, the others on the CPU"
    return ""
