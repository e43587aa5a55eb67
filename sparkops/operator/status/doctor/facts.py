"""The facts that doctor reads from one node, and the query for those beyond a deploy's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from sparkops.command import Command
from sparkops.config.node import NodeConfig
from sparkops.errors import NodeError
from sparkops.node.docker.facts import Container
from sparkops.node.host import CLOCKS_ARGV, Clocks, HostFacts, parse_clocks
from sparkops.operator.build.weights.checkpoint import ModelDirectory
from sparkops.operator.deploy.agents.packages import AgentPackages
from sparkops.operator.fleet.network.facts import NodeFabric
from sparkops.units import GIB, KIB

# $1 is the prefix of /proc and /usr: empty on a node, a directory in tests; the other arguments read the clocks of
# GPUs. 0947 is 2375, Docker without TLS.
MACHINE_SCRIPT = """\
PATH="$1/usr/sbin:$1/usr/bin:$PATH"
export LC_ALL=C
echo "kho $(grep -ow 'kho=[a-z]*' "$1/proc/cmdline" 2>/dev/null)"
for process in "$1"/proc/[0-9]*; do
  name=
  read -r name <"$process/comm" || continue
  case $name in
    sshd | dockerd) echo "oom $name $(cat "$process/oom_score_adj")" ;;
    earlyoom | systemd-oomd | nohang) echo "killer $name" ;;
  esac
done 2>/dev/null
cat "$1/proc/net/tcp" "$1/proc/net/tcp6" 2>/dev/null | awk '$4 == "0A" && $2 ~ /:0947$/ {print "docker-tcp", $2}'
cat "$1/proc/net/tcp" "$1/proc/net/tcp6" 2>/dev/null | awk '$4 == "0A" {print "listen", $2}'
if command -v docker >/dev/null; then
  echo "live-restore $(timeout 8 docker info --format '{{.LiveRestoreEnabled}}' 2>/dev/null)"
fi
sed -n 's/^SwapTotal: */swap /p' "$1/proc/meminfo" 2>/dev/null
for model in "$1$HOME"/.cache/huggingface/hub/models--*; do
  if [ -d "$model" ]; then echo "hub-cache $(timeout 4 du -sk "$model" | cut -f1) ${model#"$1"}"; fi
done
for toolkit in nvidia-ctk nvidia-container-cli; do
  if command -v $toolkit >/dev/null; then
    echo "toolkit $(timeout 4 $toolkit --version 2>/dev/null | grep -oE '[0-9]+[.][0-9]+[.][0-9]+' | head -n 1)"
    break
  fi
done
for spec in "$1"/etc/cdi/*.json "$1"/etc/cdi/*.yaml "$1"/var/run/cdi/*.json "$1"/var/run/cdi/*.yaml; do
  if [ -f "$spec" ]; then
    if [ ! -r "$spec" ] || grep -qF nvidia.com/gpu "$spec"; then echo "cdi ${spec#"$1"}"; fi
  fi
done
if command -v nvidia-smi >/dev/null; then
  if output=$(timeout 8 nvidia-smi --query-gpu=name --format=csv,noheader 2>&1); then
    echo "gpu $(echo "$output" | head -n 1)"
    for second in 0 1; do
      sleep "$second"
      echo "clocks $(shift; timeout 4 "$@" 2>/dev/null | head -n 1)"
    done
  else
    echo "gpu-error $(echo "${output:-no output within 8 s}" | tail -n 1)"
  fi
fi
"""


@dataclass(frozen=True)
class MachineFacts:
    """`kho_off` is a boot option.

    `oom_score` is oom_score_adj of sshd and dockerd, if they run: -1000 is never killed, 0 is like any other program.
    `docker_tcp` are the addresses beyond this machine on which something listens at Docker's port without TLS.
    """

    kho_off: bool
    oom_score: Mapping[str, int]
    docker_tcp: tuple[str, ...]
    toolkit: bool
    gpu: str
    gpu_error: str
    toolkit_version: str = ""
    """Version of the NVIDIA Container Toolkit, such as 1.17.8; empty for one that does not print it."""
    open_ports: frozenset[int] = frozenset()
    """TCP ports on which something listens beyond loopback."""
    cdi: tuple[str, ...] = ()
    """CDI specs that offer nvidia.com/gpu to Docker, and unreadable ones, which may."""
    swap_gib: float | None = None
    """Size of the swap in GiB (2^30 bytes)."""
    oom_killers: frozenset[str] = frozenset()
    """Running programs that kill a process before memory runs out."""
    clocks: tuple[Clocks, ...] = ()
    """Two samples of the first GPU, a second apart; none where the driver does not report all three figures."""
    hub_cache: Mapping[str, float] = field(default_factory=dict)
    """Models in the hub's own cache of the SSH user: directory and size in GiB."""
    live_restore: bool | None = None
    """Whether containers run on while dockerd ends and starts again; None: Docker did not say."""


def machine_query(root: str = "") -> Command:
    return Command(("sh", "-c", MACHINE_SCRIPT, "sparkops", root, *CLOCKS_ARGV), timeout_s=30.0)


def parse_machine(text: str) -> MachineFacts:
    """Parse the output of machine_query(). Raises ValueError for other text."""
    values = defaultdict[str, list[str]](list)
    for key, _, value in (line.partition(" ") for line in text.splitlines()):
        values[key].append(value)
    if "kho" not in values:
        raise ValueError(f"no 'kho' in {text[:200]!r}")
    docker = [_address(socket) for socket in values["docker-tcp"]]
    live_restore = {"true": True, "false": False}
    cached = [value.partition(" ") for value in values["hub-cache"]]
    return MachineFacts(
        kho_off=values["kho"][-1] == "kho=off",
        oom_score=_scores(value.split() for value in values["oom"]),
        docker_tcp=tuple(str(address) for address in docker if not address.is_loopback),
        toolkit="toolkit" in values,
        toolkit_version="".join(values["toolkit"]),
        gpu="".join(values["gpu"]),
        gpu_error="".join(values["gpu-error"]),
        open_ports=frozenset(
            int(socket.partition(":")[2], 16) for socket in values["listen"] if not _address(socket).is_loopback
        ),
        cdi=tuple(values["cdi"]),
        swap_gib=_gib(values["swap"][-1].split()[0]) if "swap" in values else None,
        oom_killers=frozenset(values["killer"]),
        clocks=parse_clocks("\n".join(values["clocks"])),
        hub_cache={directory: _gib(kib) for kib, _, directory in cached if kib.isdecimal()},  # others took too long
        live_restore=live_restore.get("".join(values["live-restore"])),
    )


def _gib(kib: str) -> float:
    return int(kib) * KIB / GIB


def _scores(rows: Iterable[list[str]]) -> dict[str, int]:
    """Return the lowest score of each name: sshd protects its listening process, not those of its sessions."""
    lowest: dict[str, int] = {}
    for name, score in rows:
        lowest[name] = min(int(score), lowest.get(name, int(score)))
    return lowest


def _address(socket: str) -> IPv4Address | IPv6Address:
    """Parse an address of /proc/net/tcp: groups of 32 bits in the machine's order, little-endian on x86 and arm."""
    raw = bytes.fromhex(socket.partition(":")[0])
    ordered = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    return IPv4Address(ordered) if len(ordered) == 4 else IPv6Address(ordered)


@dataclass(frozen=True)
class NodeFacts:
    """Facts of one node. `skew_s`: seconds that its clock is ahead of this machine's.

    `containers` are ranks of services, behind the `gateway` if the fleet has one. `filtered`: the ports that nftables
    closes; None if the guard did not report them. `agents`: Docker's state of guard and gateway, by container name.
    """

    name: str
    config: NodeConfig
    host: HostFacts
    machine: MachineFacts
    fabric: NodeFabric
    docker: str
    skew_s: float
    containers: tuple[Container, ...] = ()
    filtered: frozenset[int] | None = None
    gateway: bool = False
    agents: Mapping[str, str] = field(default_factory=dict)
    weights: ModelDirectory | NodeError | None = None
    packages: Mapping[str, AgentPackages | NodeError] = field(default_factory=dict)
    """Debian's packages in guard and gateway, by container name; empty unless they were asked for."""
