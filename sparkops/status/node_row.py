"""A node in the output of `sparkops status --json`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of a node in GiB (2^30 bytes), shared by CPU and GPU on a Spark."""

    total_gib: float
    """Total memory in GiB."""
    available_gib: float
    """Memory available to new programs, in GiB."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """Load of a GPU, as reported by its driver; null if unknown."""

    use: float | None
    """Share of the driver's last sample period in which it computed, 0 to 1."""
    power_w: float | None
    """Power in watts."""
    temperature_c: float | None
    """Temperature in degrees Celsius."""
    clock_mhz: float | None
    """Clock of the processors in MHz."""
    memory_used_gib: float | None = None
    """Used memory of a discrete GPU in GiB (2^30 bytes); null where it shares the node's, as on a Spark."""
    memory_total_gib: float | None = None
    """Total memory of a discrete GPU in GiB; null where it shares the node's."""


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """One node of the inventory."""

    name: str
    """Name in the inventory."""
    reachable: bool
    """Whether the node could be reached and read."""
    error: str | None
    """Reason if not; null otherwise."""
    memory: Memory | None
    """Its memory; null if it could not be read."""
    next_step: str | None = None
    """Next step after the error; null without one."""
    disk_free_gib: float | None = None
    """Free disk for images and containers, in GiB; null if unknown."""
    gpus: list[Gpu] = field(default_factory=list)
    """Its GPUs; empty without `--gpu`, and on nodes without nvidia-smi."""
    cordon: str | None = None
    """Why nothing new starts on it, and by whom; null for an open node."""
    cordon_unknown: bool = False
    """Whether it is unknown whether new releases start on it: its guard does not reply its cordon."""
    displaced: list[str] = field(default_factory=list)
    """Services that a drain has moved or stopped, until `sparkops node return` has brought them back."""
