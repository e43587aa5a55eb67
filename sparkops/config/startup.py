"""The limits of a start. Modules that read a node import them without the rest of a recipe."""

from __future__ import annotations

from sparkops.config.fields import Positive, Section


class Startup(Section):
    """Limits after which a start has failed; a start that makes progress has no other deadline."""

    stall_s: Positive = 180.0
    """Seconds without any progress while weights load."""
    compile_stall_s: Positive = 300.0
    """Seconds without any progress while the engine compiles, tunes or captures graphs."""
    configuration: bool = True
    """Whether the engine's configuration is built on the node before a deploy stops anything."""
    max_s: Positive = 1800.0
    """Maximum seconds of a start, even with progress."""
