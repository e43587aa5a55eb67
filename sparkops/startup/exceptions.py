"""The exception behind a failed start, read from an engine's log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkops.startup.vllm_log import FATAL

# What vLLM, Ray and torch put before a line of an error: each process its name, Ray in color.
PREFIX = re.compile(
    r"(?:(?:\x1b\[\d+m)?\([\w-]+ pid=\d+[^)]*\)(?:\x1b\[\d+m)? ?)*(?:\[rank\d+\]: ?)?"
    r"(?:ERROR [\d-]+ [\d:]+ \[[^]]+\] ?)?"
)
EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception)(?:\(\w+\))?: \S")
# A process reports that another one, or its own core, has failed: the reason is another line.
ANNOUNCED = re.compile(
    r"(EngineCore|WorkerProc) (failed|encountered)|(Engine core|WorkerProc) initialization failed"
    r"|Worker failed with error|\(\w+\): ray::"
)


def headline(lines: Sequence[str]) -> str:
    """Return the line of the exception that caused a failure, without its prefix; empty without any error.

    That is the first one after vLLM has reported the failure: what follows was caused by it. Where vLLM reports none,
    the process died of the last one.
    """
    texts = [_text(line) for line in lines]
    reported = next((number for number, text in enumerate(texts) if FATAL.search(text)), None)
    specific = [number for number, text in enumerate(texts) if _is_specific(text)]
    if reported is None:
        return texts[specific[-1]] if specific else ""
    return texts[
        next((number for number in specific if number >= reported), specific[-1] if specific else reported)
    ].strip()


def _text(line: str) -> str:
    match = PREFIX.match(line)
    return line[match.end() :] if match else line


def _is_specific(text: str) -> bool:
    is_error = EXCEPTION.match(text) or (FATAL.search(text) and not text.startswith(" "))
    return bool(is_error and not ANNOUNCED.search(text))
