"""The global options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """The global options."""

    inventory: Path
    verbose: bool
