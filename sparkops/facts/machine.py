"""What doctor asks of a node besides what a deploy asks: a query and its parser."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from sparkops.command import Command

# $1 is what stands before /proc and /usr: nothing on a node, a directory in tests. 0947 is 2375, Docker without TLS.
QUERY_SCRIPT = """\
PATH="$1/usr/sbin:$1/usr/bin:$PATH"
export LC_ALL=C
echo "kho $(grep -ow 'kho=[a-z]*' "$1/proc/cmdline" 2>/dev/null)"
for process in "$1"/proc/[0-9]*; do
  name=
  read -r name <"$process/comm" || continue
  case $name in sshd | dockerd) echo "oom $name $(cat "$process/oom_score_adj")" ;; esac
done 2>/dev/null
cat "$1/proc/net/tcp" "$1/proc/net/tcp6" 2>/dev/null | awk '$4 == "0A" && $2 ~ /:0947$/ {print "docker-tcp", $2}'
cat "$1/proc/net/tcp" "$1/proc/net/tcp6" 2>/dev/null | awk '$4 == "0A" {print "listen", $2}'
if command -v nvidia-ctk >/dev/null || command -v nvidia-container-cli >/dev/null; then echo "toolkit yes"; fi
for spec in "$1"/etc/cdi/*.json "$1"/etc/cdi/*.yaml "$1"/var/run/cdi/*.json "$1"/var/run/cdi/*.yaml; do
  if [ -f "$spec" ]; then
    if [ ! -r "$spec" ] || grep -qF nvidia.com/gpu "$spec"; then echo "cdi ${spec#"$1"}"; fi
  fi
done
if command -v nvidia-smi >/dev/null; then
  if said=$(timeout 8 nvidia-smi --query-gpu=name --format=csv,noheader 2>&1); then
    echo "gpu $(echo "$said" | head -n 1)"
  else
    echo "gpu-error $(echo "${said:-it gave no answer for 8 s}" | tail -n 1)"
  fi
fi
"""


@dataclass(frozen=True)
class MachineFacts:
    """`kho_off` is a boot option.

    `oom_score` is oom_score_adj of sshd and dockerd, where seen: -1000 is never killed, 0 is like any other program.
    `docker_tcp` are the addresses beyond this machine on which something listens at Docker's port without TLS.
    """

    kho_off: bool
    oom_score: Mapping[str, int]
    docker_tcp: tuple[str, ...]
    toolkit: bool
    gpu: str
    gpu_error: str
    open_ports: frozenset[int] = frozenset()
    """TCP ports on which something listens beyond loopback."""
    cdi: tuple[str, ...] = ()
    """CDI specs that offer nvidia.com/gpu to Docker, and those that may: their content cannot be read."""


def query(root: str = "") -> Command:
    """Ask a node for all of it, in one round trip."""
    return Command(("sh", "-c", QUERY_SCRIPT, "sparkops", root), timeout_s=15.0)


def parse(text: str) -> MachineFacts:
    """Read the output of query(). Raises ValueError for anything else."""
    lines = [line.partition(" ")[::2] for line in text.splitlines()]
    said = dict(lines)
    if "kho" not in said:
        raise ValueError(f"no 'kho' in {text!r}")
    listeners = (_address(value) for key, value in lines if key == "docker-tcp")
    return MachineFacts(
        kho_off=said["kho"] == "kho=off",
        oom_score=_scores(value.split() for key, value in lines if key == "oom"),
        docker_tcp=tuple(str(address) for address in listeners if not address.is_loopback),
        toolkit="toolkit" in said,
        gpu=said.get("gpu", ""),
        gpu_error=said.get("gpu-error", ""),
        open_ports=frozenset(_open_ports(value for key, value in lines if key == "listen")),
        cdi=tuple(value for key, value in lines if key == "cdi"),
    )


def _scores(said: Iterable[list[str]]) -> dict[str, int]:
    """The lowest of each name: sshd protects the process that listens, and not those of its sessions."""
    found: dict[str, int] = {}
    for name, score in said:
        found[name] = min(int(score), found.get(name, int(score)))
    return found


def _open_ports(listening: Iterable[str]) -> Iterator[int]:
    for socket in listening:
        if not _address(socket).is_loopback:
            yield int(socket.partition(":")[2], 16)


def _address(said: str) -> IPv4Address | IPv6Address:
    """/proc/net/tcp writes each 32 bits of an address in the machine's order, which is little-endian on x86 and arm."""
    raw = bytes.fromhex(said.partition(":")[0])
    turned = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    return IPv4Address(turned) if len(turned) == 4 else IPv6Address(turned)
