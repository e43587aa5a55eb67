"""What a known cause of a failed start is: one object with its pattern, the cause, the next step and its source."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Advice(NamedTuple):
    """The likely cause of a failure, and the next step."""

    cause: str
    step: str


@dataclass(frozen=True)
class Cause:
    """One known cause of a failed start.

    The pattern is searched in one line of the log, and compiled at a failure: `status` imports the engines, and reads
    no log. `{}` in `cause` and `step` is its first group, `{1}` the second; a group that did not match is empty.
    """

    pattern: str
    cause: str = ""
    step: str = ""
    source: str = ""
    """The file of the program that writes the message, or the report that shows it."""
    unless: str = ""
    """A pattern of the lines that look alike and are harmless, or have another cause."""
    beside: str = ""
    """A pattern that another line of the same log must match too, for a message that says little by itself."""
    told_beside: bool = False
    """Whether the line that `beside` matches is the root, and the message only introduces it."""
    until: str = ""
    """A pattern of a later line of the same log that shows that what a quiet cause waits for has come."""
    of_others: bool = False
    """Whether the message is about the end of another rank or process: the cause stands in its log."""
    quiet: bool = False
    """Whether the line is no error by itself, and explains a start that hangs, was killed or ends without a word: it
    counts only where no line of the log reports an error, and may be logged calmly."""
    explain: Callable[[re.Match[str], str], Advice] | None = None
    """Returns cause and step from figures in the line; also gets the log up to it. In place of `cause` and `step`."""

    def advice(self, match: re.Match[str], before: str) -> Advice:
        """Return cause and step for a line that matches. `before`: the log up to that line."""
        if self.explain:
            return self.explain(match, before)
        groups = [group or "" for group in match.groups()]
        return Advice(self.cause.format(*groups), self.step.format(*groups))


SIZE = r"[\d.]{1,20} \w{1,20}"
"""A size as torch prints it, such as 2.00 GiB."""
GIB = r"(\d{1,9}(?:\.\d{1,9})?)"
TORCH = "torch (c10/cuda/CUDACachingAllocator.cpp)"


def out_of_gpu_memory(step: str) -> tuple[Cause, ...]:
    """Return the causes where torch finds too little memory of the GPU, with figures and without.

    They are of an engine, because its arguments decide what it takes. FlashInfer's tuner goes on after such an error.
    """
    return (
        Cause(
            rf"CUDA out of memory\. Tried to allocate ({SIZE})\. GPU \d{{1,9}} has a total capacity of ({SIZE}) "
            rf"of which ({SIZE}) is free",
            "an allocation of {0} failed: {2} of the GPU's {1} were free",
            step,
            source=TORCH,
        ),
        Cause(
            r"CUDA out of memory|NV_ERR_NO_MEMORY|CUDA error: out of memory",
            "the engine ran out of GPU memory",
            step,
            source=TORCH,
            unless=r"[Aa]utotun|fall(?:ing)? ?back",
        ),
    )


def refused_arguments(engine: str, other: str) -> tuple[Cause, ...]:
    """Return the causes where argparse refuses an argument or its value. `other`: what to do but remove it."""
    return (
        Cause(
            r": error: unrecognized arguments: (.{1,256})",
            f"this {engine} does not accept an argument of serve.args: {{}}",
            f"Remove {{}} from serve.args, or {other}.",
            source="argparse",
        ),
        Cause(
            r": error: argument (-[^\s:]{1,256}): (.{1,256})",
            f"this {engine} does not accept the value of {{0}}: {{1}}",
            "Correct it in serve.args.",
            source="argparse",
        ),
    )


def no_gpu(pattern: str, source: str) -> Cause:
    """Return the cause where an engine finds no GPU."""
    step = (
        "Check `nvidia-smi` on the node and `gpu` of the node in the inventory (runtime, cdi or devices), then run "
        "`sparkops doctor`."
    )
    return Cause(
        pattern,
        "the engine finds no GPU: the container has none, or torch or the driver cannot use it",
        step,
        source=source,
    )
