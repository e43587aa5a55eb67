"""The exception behind a failed start, read from an engine's log, and the log without its tracebacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from sparkops.facts.vllm_log import FATAL

# What vLLM, Ray and torch put before a line of an error: each process its name, Ray in color.
PREFIX = re.compile(
    r"(?:(?:\x1b\[\d+m)?\([\w-]+ pid=\d+[^)]*\)(?:\x1b\[\d+m)? ?)*(?:\[rank\d+\]: ?)?"
    r"(?:ERROR [\d-]+ [\d:]+ \[[^]]+\] ?)?"
)
EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception)(?:\(\w+\))?: \S")
FRAME = re.compile(r"Traceback \(most recent call last\)|  File \"|  \[Previous line repeated|    ")
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
    own = [number for number, text in enumerate(texts) if _is_specific(text)]
    if reported is None:
        return texts[own[-1]] if own else ""
    return texts[next((number for number in own if number >= reported), own[-1] if own else reported)].strip()


def fold(lines: Sequence[str], error: str) -> Iterator[str]:
    """Yield the lines without those of `error`, which is shown elsewhere, and with one line for a traceback."""
    others = (line for line in lines if _text(line).strip() != error)
    for is_frame, group in groupby(others, key=lambda line: bool(FRAME.match(_text(line)))):
        if is_frame:
            count = len(list(group))
            yield f"... traceback of {count} line{'s' if count > 1 else ''}"
        else:
            yield from group


def _text(line: str) -> str:
    match = PREFIX.match(line)
    return line[match.end() :] if match else line


def _is_specific(text: str) -> bool:
    is_error = EXCEPTION.match(text) or (FATAL.search(text) and not text.startswith(" "))
    return bool(is_error and not ANNOUNCED.search(text))
