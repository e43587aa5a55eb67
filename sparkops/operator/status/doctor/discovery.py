"""The inventory that `init` writes, and the query for the model directories of a node. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count

from sparkops import __version__
from sparkops.command import Command
from sparkops.errors import UsageError
from sparkops.names import counted
from sparkops.node.host import HostFacts
from sparkops.operator.fleet.network.facts import NodeFabric
from sparkops.operator.status.doctor.facts import MachineFacts

# $1 is the prefix of /srv, /data and the home: empty on a node, a directory in tests.
DISCOVERY_SCRIPT = """\
for directory in "$1/srv/models" "$1$HOME/models" "$1/models" "$1/data/models" "$1"/mnt/*/models; do
  if [ -d "$directory" ]; then
    count=0
    for model in "$directory"/*/config.json; do
      if [ -f "$model" ]; then count=$((count + 1)); fi
    done
    if [ -w "$directory" ]; then access=writable; else access=closed; fi
    echo "models $count $access ${directory#"$1"}"
  fi
done
"""
MODEL_DIR, GPU = "/srv/models", "runtime"
UNREAD = {"model_dir": MODEL_DIR, "gpu": GPU}
PLAIN = re.compile(r"[\w./][\w./-]*")
SHARED = ("user", "port", "ssh_key", "model_dir", "gpu")
"""Keys of a node that `defaults` may state for all."""
HEAD = f"""\
# Written by sparkops {__version__}.
# The nodes of your fleet. Every key: sparkops recipe schema inventory --markdown
known_hosts: known_hosts        # pinned SSH host keys, by node
"""


@dataclass(frozen=True)
class Models:
    """A directory of models. `writable`: the SSH user may write there."""

    count: int
    writable: bool
    path: str


@dataclass(frozen=True)
class Discovered:
    """Facts of a node that its line in the inventory needs."""

    host: HostFacts
    machine: MachineFacts
    fabric: NodeFabric
    models: Models | None
    fleet_name: str = ""
    """How the guards of a running fleet call it; empty before its first deploy."""
    leaders: frozenset[str] = frozenset()
    """The nodes that lead the services of its fleet, as its guard knows them."""

    @property
    def gpu(self) -> str:
        """Way of the GPU into a container: `runtime` for a GPU without toolkit and CDI spec, which doctor reports."""
        if not (self.machine.gpu or self.machine.gpu_error or self.host.gpu_model):
            return "none"
        return "cdi" if self.machine.cdi and not self.machine.toolkit else GPU

    def __str__(self) -> str:
        models = self.models
        ports = (device for device in self.fabric.devices if device.active and device.gids)
        parts = [
            self.machine.gpu or self.host.gpu_model or "no GPU found",
            f"{self.host.memory_total_gib:.1f} GiB of memory",
            *(f"{port.name} {port.gids[0].address}" for port in ports),
            f"{counted(models.count, 'model')} in {models.path}"
            if models
            else f"no model directory found: create {MODEL_DIR}",
        ]
        return ", ".join(parts) + ("" if models is None or models.writable else ", not writable for its user")


def query(root: str = "") -> Command:
    """List the model directories of a node."""
    return Command(("sh", "-c", DISCOVERY_SCRIPT, "sparkops", root), timeout_s=15.0)


def parse(text: str) -> Models | None:
    """Return the directory with the most models, a writable one before others; None without any."""
    rows = (line.split(None, 3) for line in text.splitlines() if line.startswith("models "))
    directories = [Models(int(count), access == "writable", path) for _, count, access, path in rows]
    return max(directories, key=lambda models: (models.count, models.writable), default=None)


def names(drafted: Sequence[str], known: Mapping[str, Discovered]) -> dict[str, str]:
    """Return the name of each drafted node: as its fleet calls it, else the drafted one, or the next that is free.

    Raises UsageError where two nodes have one name in their fleets.
    """
    given = {name: node.fleet_name for name, node in known.items() if node.fleet_name}
    for name, fleet_name in given.items():
        if twice := [other for other, same in given.items() if same == fleet_name and other != name]:
            problem = f"{name} and {twice[0]}: the guards of both call their node {fleet_name}"
            raise UsageError(problem, next_step="Name each node once, and only nodes of one fleet.")
    taken = set(given.values())
    result = dict[str, str]()
    for name in drafted:
        candidates = chain((name,), (f"spark-{number}" for number in count(1)))
        result[name] = given.get(name) or next(item for item in candidates if item not in taken)
        taken.add(result[name])
    return result


def inventory(routes: Mapping[str, Mapping[str, str]], known: Mapping[str, Discovered], lost: Mapping[str, str]) -> str:
    """Return the text of an inventory: how each node is reached, and its facts or why they are missing.

    Nodes without facts are comments, unless no node has any. The gateway is on the node that leads, or on the first.
    """
    nodes = {name: {**route, **_stated(known.get(name))} for name, route in routes.items()}
    usual = {key: _most_frequent(nodes[name].get(key) for name in known or routes) for key in SHARED}
    defaults = {key: value for key in SHARED if (value := usual[key] or UNREAD.get(key))}
    lines = [HEAD + "defaults:", *(f"  {key}: {_plain(value)}" for key, value in defaults.items()), "nodes:"]
    for name, node in nodes.items():
        own = {key: value for key, value in node.items() if defaults.get(key) != value}
        mark = "# " if known and name not in known else ""
        remark = " ".join(str(known.get(name) or lost.get(name, "not read")).split())
        lines.append(f"  {mark}{name}: {_flow(own)}  # {remark}")
    leaders = sorted({leader for node in known.values() for leader in node.leaders})
    place = next((leader for leader in leaders if leader in known), next(iter(known or routes)))
    lines.append(_gateway(place, nodes) if place in leaders or not leaders else _absent(leaders[0]))
    return "\n".join(lines) + "\n"


def _absent(leader: str) -> str:
    """Return the line for a fleet whose gateway is on a node that was not read."""
    return f"# gateway: {{node: {leader}, port: 8000}}  # {leader} leads this fleet: name its address too"


def _stated(node: Discovered | None) -> dict[str, str]:
    return {} if node is None else {"gpu": node.gpu, "model_dir": node.models.path if node.models else MODEL_DIR}


def _most_frequent(values: Iterable[str | None]) -> str | None:
    counts = Counter(value for value in values if value)
    return max(counts, key=lambda value: counts[value], default=None)


def _flow(settings: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {_plain(value)}" for key, value in settings.items()) + "}"


def _plain(value: str) -> str:
    """Return a scalar of YAML, which reads any JSON string."""
    return value if PLAIN.fullmatch(value) else json.dumps(value)


def _gateway(node: str, nodes: Mapping[str, Mapping[str, str]]) -> str:
    if nodes[node].get("transport") == "local":
        return (
            f"# gateway: {{node: {node}, port: 8000, address: ADDRESS}}   # ADDRESS is where clients reach this machine"
        )
    return f"gateway: {{node: {node}, port: 8000}}  # clients call it; a deploy switches between releases"
