"""Facts of a node: queries and the parsers of their output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from ipaddress import ip_address

from sparkops.command import Command
from sparkops.units import GIB, KIB, MIB

QUERY_SCRIPT = """\
echo "arch $(uname -m)"
echo "now $(date +%s.%N)"
while read -r key value _; do
  case $key in MemTotal: | MemAvailable: | MemFree:) echo "$key $value" ;; esac
done </proc/meminfo
for file in /proc/driver/nvidia/gpus/*/information; do
  test ! -e "$file" || sed -n 's/^Model:[[:space:]]*/gpu-model /p' "$file"
done
"""
DISK_SCRIPT = """\
df -Pk "${root:-/var/lib/docker}" 2>/dev/null | { read -r _ && read -r _ _ _ free _ && echo "disk $free"; } || true
"""
DEFAULT_DOCKER = "docker default"
STATUS_SCRIPT = f"""\
{QUERY_SCRIPT}root=$1
{DISK_SCRIPT}echo "docker ${{DOCKER_HOST:-default}}"
"""
GPU_SCRIPT = """\
if command -v nvidia-smi >/dev/null; then
  timeout 8 nvidia-smi --query-gpu=memory.total,memory.free,memory.reserved --format=csv,noheader,nounits 2>/dev/null |
    sed 's/^/gpu-memory /'
fi
"""

GPU_STATE_SCRIPT = """\
command -v nvidia-smi >/dev/null || exit 0
fields=utilization.gpu,power.draw,temperature.gpu,clocks.sm,memory.used,memory.total
timeout 8 nvidia-smi --query-gpu=$fields --format=csv,noheader,nounits || true
"""

PREFLIGHT_SCRIPT = (
    QUERY_SCRIPT
    + GPU_SCRIPT
    + """\
format='{{.DockerRootDir}} {{range .ClientInfo.Plugins}}{{.Name}} {{end}}'
docker=$(docker info --format "$format" 2>/dev/null || true)
root=${docker%% *}
# Before version 23 the client had BuildKit itself; since then it is the plugin buildx.
case "$docker $(docker --version 2>/dev/null)" in *" buildx "* | *" version 2"[012].*) echo "buildkit yes" ;; esac
"""
    + DISK_SCRIPT
    + """\
echo "cores $(nproc)"
awk '/^NVRM/ { for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]+[.][0-9]/) { print "driver", $i; exit } }' \\
  /proc/driver/nvidia/version 2>/dev/null || true
sed -n 's/.*libcuda[.]so[.]\\([0-9][0-9][0-9][.][0-9.]*\\).*/cdi \\1/p' \\
  /etc/cdi/*.yaml /var/run/cdi/*.yaml 2>/dev/null | head -n 1
awk '$4 == "0A" {print "listen", substr($2, index($2, ":") + 1)}' /proc/net/tcp /proc/net/tcp6 2>/dev/null
"""
)

CLOCKS_ARGV = (
    *("nvidia-smi", "--query-gpu=clocks.sm,clocks.max.sm,utilization.gpu"),
    "--format=csv,noheader,nounits",
)
"""Prints a line for each GPU: `parse_clocks`."""
MEMORY = Command(("sh", "-c", QUERY_SCRIPT), timeout_s=15.0)
FREE = Command(("sh", "-c", QUERY_SCRIPT + GPU_SCRIPT), timeout_s=15.0)
"""Memory with that of the GPUs; in the guard's container, which has no nvidia-smi, without it."""
GPU_STATE = Command(("sh", "-c", GPU_STATE_SCRIPT), timeout_s=15.0)
"""Load of each GPU; empty without nvidia-smi."""
ADDRESSES = Command(("hostname", "-I"), timeout_s=15.0)
"""IP addresses of all interfaces, without loopback and IPv6 link-local ones."""
PREFLIGHT = Command(("sh", "-c", PREFLIGHT_SCRIPT), timeout_s=30.0)
"""Facts for a build or deploy, in one round trip."""


@dataclass(frozen=True)
class GpuMemory:
    """Memory of one discrete GPU in GiB, without what the driver reserves: the total that CUDA counts."""

    total_gib: float
    free_gib: float


@dataclass(frozen=True)
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


BUSY_PERCENT, STUCK_SHARE = 80, 1 / 3
"""A GPU at least so busy, below this share of its highest clock, is stuck in a low-power state: 702 of 2398 MHz under
load, until its power was cut (eugr/spark-vllm-docker#334)."""


@dataclass(frozen=True)
class Clocks:
    """A sample of one GPU: SM clock, highest SM clock, utilization in percent."""

    sm_mhz: int
    max_mhz: int
    busy_percent: int

    @property
    def busy(self) -> bool:
        """Whether its clock shows anything: that of an idle GPU is low as well."""
        return self.busy_percent >= BUSY_PERCENT

    @property
    def stuck(self) -> bool:
        """Whether it is busy and slow. One sample may be a transient."""
        return self.busy and self.sm_mhz < STUCK_SHARE * self.max_mhz

    def __str__(self) -> str:
        return f"the GPU runs at {self.sm_mhz} of {self.max_mhz} MHz while {self.busy_percent} % busy"


POWER_CUT = "sudo poweroff, unplug the power adapter for a few minutes, start again: a reboot does not help"
"""The next step where a GPU is stuck."""


def parse_clocks(text: str) -> tuple[Clocks, ...]:
    """Parse the output of CLOCKS_ARGV, by GPU; one with another value, such as [N/A], is left out."""
    rows = [line.split(", ") for line in text.splitlines()]
    return tuple(
        Clocks(*map(int, row)) for row in rows if len(row) == len(fields(Clocks)) and all(map(str.isdecimal, row))
    )


@dataclass(frozen=True)
class HostFacts:
    """Facts of one node. Memory and disk in GiB (2^30 bytes); `now_s` is the node's clock, seconds since 1970."""

    arch: str
    now_s: float
    memory_total_gib: float
    memory_available_gib: float
    disk_free_gib: float | None = None
    buildkit: bool = False
    listening: frozenset[int] = frozenset()
    cores: int | None = None
    gpu_model: str = ""
    """Model of the first GPU as the driver names it in /proc; empty without a driver."""
    driver: str = ""
    """Version of the NVIDIA driver, such as 580.95.05; empty without one, or where it was not read."""
    cdi: str = ""
    """Version of the driver whose files the node's CDI specification names; empty without one, or where not read."""
    gpus: tuple[GpuMemory | None, ...] = ()
    """Memory by GPU, as nvidia-smi reports it; None for one that shares the node's memory (GB10: [N/A])."""
    memory_free_gib: float | None = None
    """MemFree: without the page cache. Where memory is shared, it is what CUDA counts as free."""

    @property
    def gpu_shares_memory(self) -> bool:
        """Whether a GPU has no memory of its own."""
        return None in self.gpus if self.gpus else "GB10" in self.gpu_model

    @property
    def gpu_is_discrete(self) -> bool:
        """Whether a GPU has memory of its own. Without nvidia-smi the model decides: only a GB10 has none."""
        return any(self.gpus) if self.gpus else bool(self.gpu_model) and "GB10" not in self.gpu_model

    @property
    def gpu(self) -> GpuMemory | None:
        """Memory of the discrete GPU with the least free: an engine uses one GPU of a node, and may use any."""
        return min((gpu for gpu in self.gpus if gpu), key=lambda gpu: gpu.free_gib, default=None)


def status(disk: str = "") -> Command:
    """Return the query of `status`: what `parse` reads, with the disk of a directory (that of Docker), and a line with
    the Docker of the user: DEFAULT_DOCKER without DOCKER_HOST.
    """
    return Command(("sh", "-c", STATUS_SCRIPT, "sparkops", disk), timeout_s=15.0)


def parse_addresses(text: str) -> tuple[str, ...]:
    """Parse the output of ADDRESSES, sorted. Raises ValueError for other or empty text."""
    addresses = tuple(sorted(str(ip_address(word[:100])) for word in text.split()))
    if not addresses:
        raise ValueError("hostname -I: no address: expected at least one")
    return addresses


def parse_gpu_states(text: str) -> tuple[Gpu, ...]:
    """Parse the output of GPU_STATE. A figure that the driver lacks is None; any other line is a message.

    Used and free memory are less than the total of nvidia-smi, which counts what the driver reserves.
    """
    rows = [[_number(cell) for cell in line.split(", ")] for line in text.splitlines()]
    return tuple(
        Gpu(row[0] / 100 if row[0] is not None else None, *row[1:4], *(_mib(figure) for figure in row[4:]))
        for row in rows
        if len(row) == len(fields(Gpu)) and any(figure is not None for figure in row)
    )


def _mib(figure: float | None) -> float | None:
    return None if figure is None else figure * MIB / GIB


def _number(cell: str) -> float | None:
    """Return a figure of nvidia-smi; None for `[N/A]` and the like."""
    return float(cell) if cell.replace(".", "", 1).isdecimal() else None


def available_gib(meminfo: str) -> float:
    """Return MemAvailable of /proc/meminfo, in GiB. Raises ValueError without it."""
    return _gib(meminfo, "MemAvailable")


def total_gib(meminfo: str) -> float:
    """Return MemTotal of /proc/meminfo, in GiB. Raises ValueError without it."""
    return _gib(meminfo, "MemTotal")


def _gib(meminfo: str, name: str) -> float:
    for line in meminfo.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * KIB / GIB
    raise ValueError(f"no '{name}' in {meminfo[:200]!r}")


def parse(text: str) -> HostFacts:
    """Parse what any of the commands here that begin with QUERY_SCRIPT prints. Raises ValueError for other text."""
    lines = [line.split(None, 1) for line in text.splitlines() if " " in line.strip()]
    pairs = {(key.rstrip(":"), value) for key, value in lines}
    values = dict(pairs)
    try:
        return HostFacts(
            arch=values["arch"],
            now_s=float(values["now"]),
            memory_total_gib=int(values["MemTotal"]) * KIB / GIB,
            memory_available_gib=available_gib(text),
            disk_free_gib=int(values["disk"]) * KIB / GIB if "disk" in values else None,
            buildkit=("buildkit", "yes") in pairs,
            listening=frozenset(int(value, 16) for key, value in pairs if key == "listen"),
            cores=int(values["cores"]) if "cores" in values else None,
            gpu_model=values.get("gpu-model", ""),
            driver=values.get("driver", ""),
            cdi=values.get("cdi", ""),
            memory_free_gib=int(values["MemFree"]) * KIB / GIB if "MemFree" in values else None,
            gpus=tuple(_gpus(value for key, value in lines if key == "gpu-memory")),
        )
    except KeyError as missing:
        raise ValueError(f"no {missing} in {text[:200]!r}") from None


def _gpus(rows: Iterable[str]) -> Iterator[GpuMemory | None]:
    """Parse nvidia-smi's `total, free, reserved` in MiB. Any other line is a message without a figure.

    An H100 has 81559 with 480 reserved, and torch.cuda.mem_get_info 81079 (driver 580.159.04).
    """
    for row in rows:
        total, free, reserved = (*row.split(", "), "", "")[:3]
        if total.isdecimal() and free.isdecimal():
            usable = int(total) - (int(reserved) if reserved.isdecimal() else 0)
            yield GpuMemory(usable * MIB / GIB, int(free) * MIB / GIB)
        elif total == "[N/A]":
            yield None
