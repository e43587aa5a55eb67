"""Sizes as engines read them in arguments."""

from __future__ import annotations

import re

UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""vLLM's own suffixes: human_readable_int in vllm/utils/argparse_utils.py."""


class WrongValue(ValueError):
    """An argument whose value no engine accepts, whatever the model."""


def scaled(value: object, suffixes: str) -> float | None:
    """Return a number that may end in one of vLLM's suffixes, such as 20G or 128k; None for anything else."""
    match = re.fullmatch(rf"(\d+(?:\.\d+)?)([{suffixes}]?)", str(value))
    return float(match[1]) * UNITS.get(match[2], 1) if match else None
