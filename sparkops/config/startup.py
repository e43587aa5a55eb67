"""The limits of a start. Modules that read a node import them without the rest of a recipe."""

from __future__ import annotations

from sparkops.config.fields import Positive, Section


class Startup(Section):
    """When a start counts as hung. Nothing else ends a start that still moves."""

    stall_s: Positive = 180.0
    """Seconds without any progress while weights load."""
    compile_stall_s: Positive = 300.0
    """Seconds without any progress while the engine compiles, tunes or captures graphs."""
    ceiling_s: Positive = 1800.0
    """Seconds after which a start is given up although it moves."""
