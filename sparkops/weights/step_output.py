"""What the script of a step tells while it works."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class StepProgress:
    """Bytes that are written, of all."""

    done: int
    total: int


def parse(line: str) -> StepProgress | str | None:
    """One line of a script of templates/steps: progress, words for a person, or None for anything else."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    match message:
        case {"bytes": int(done), "total": int(total)}:
            return StepProgress(done, total)
        case {"say": str(words)}:
            return words
        case _:
            return None
