"""What the programs of a preflight printed, as values."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# bytes, iterations, peak (0.00 when a duration is given), average, messages: the columns of perftest's result
RESULT = re.compile(r"\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*")
UNLIMITED = -1
STARTS = ("Env", "Entrypoint", "Cmd", "User", "WorkingDir", "Healthcheck")
"""What of an image's configuration decides which programs a container runs."""


@dataclass(frozen=True)
class Met:
    """What a rank saw from inside its image. `met` are the ranks that it met, `taken` the ports that others have."""

    vllm: str
    torch: str
    ray: str
    memlock_bytes: int
    rdma: tuple[str, ...]
    taken: tuple[int, ...]
    met: tuple[int, ...]
    problem: str

    @property
    def locks_memory(self) -> bool:
        """Whether it may lock as much memory as it likes, as RDMA needs it."""
        return self.memlock_bytes == UNLIMITED


def bandwidth(printed: str) -> float:
    """Gbit/s that ib_write_bw measured. Raises ValueError if it printed no result in Gbit/s."""
    lines = printed.splitlines()
    results = [match[1] for line in lines if (match := RESULT.fullmatch(line))]
    if not results or not any("BW average[Gb/sec]" in line for line in lines):
        raise ValueError(f"no result in {printed!r}")
    return float(results[-1])


def met(printed: str) -> Met:
    """Read the last line of templates/meet.py. Raises ValueError for anything else."""
    try:
        reply = json.loads((printed.splitlines() or [""])[-1])
        return Met(
            vllm=reply["vllm"],
            torch=reply["torch"],
            ray=reply["ray"],
            memlock_bytes=reply["memlock"],
            rdma=tuple(reply["rdma"]),
            taken=tuple(reply["taken"]),
            met=tuple(reply["met"]),
            problem=reply["problem"],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"unexpected answer {printed!r}: {error}") from None


def content(inspect: Mapping[str, Any]) -> str:
    """A digest over what an image holds and how it starts.

    Not its ID: that differs between Docker's two image stores for the same content.
    """
    config = {key: inspect["Config"].get(key) for key in STARTS}
    kept = {key: inspect[key] for key in ("Os", "Architecture", "RootFS")}
    return hashlib.sha256(json.dumps({**kept, "Config": config}, sort_keys=True).encode()).hexdigest()
