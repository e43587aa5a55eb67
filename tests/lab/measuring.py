"""Timing programs side by side."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 7
BIN = Path(sys.executable).parent
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
"""With it sparkops alone would be compiled at every call: what pip installs is compiled once."""


def measure(cases: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Return the median of each case in seconds. The cases take turns, so a busy moment slows all of them."""
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, case in cases.items():
            taken[name].append(case())
    return {name: statistics.median(times) for name, times in taken.items()}


def run(*commands: list[str]) -> float:
    """Run commands one after the other, quietly, and return the seconds. Raises CalledProcessError."""
    began = time.perf_counter()
    for argv in commands:
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - began
