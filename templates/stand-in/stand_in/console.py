"""Log lines in vLLM's format."""

from __future__ import annotations

import os
import sys
import time

APPART = 25  # added to the process ID in lines of the engine core, which is a separate process in vLLM
PROCESSES = {"A": ("APIServer", 0), "E": ("EngineCore", APPART), "W": ("Worker", APPART + 13)}


def write(text: str) -> None:
    """Write a line unchanged."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Write a line such as `A INFO [entry.py:140] Starting vLLM server`; its first letter names the process."""
    short, level, said = text.split(" ", 2)
    write(f"{_process(short)} {level} {time.strftime('%m-%d %H:%M:%S')} {said}")


def tell_script(text: str) -> None:
    """Write several lines. A line with `|` has no level; with `| ` at the start it has no process either."""
    for line in text.splitlines():
        if line.startswith("| "):
            write(line[2:])
        elif line[1:2] == "|":
            write(f"{_process(line[0])} {line[2:]}")
        else:
            tell(line)


def _process(short: str) -> str:
    name, above = PROCESSES[short]
    return f"({name} pid={os.getpid() + above})"
