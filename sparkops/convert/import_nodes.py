"""How many nodes another tool's recipe needs, as `serve` of a recipe, or why that cannot be carried over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkops.convert.carried import Carried

NODE_KEYS = ("mode", "solo_only", "cluster_only", "min_nodes", "max_nodes")
LOWEST_PORT, HIGHEST_PORT = 1024, 65000
AXES = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")
SPLIT = {
    "tensor-parallel-size": "sparkops joins at most two nodes into one replica",
    "pipeline-parallel-size": "a replica is split over nodes by tensor_parallel only",
    "data-parallel-size": "the gateway shares requests out over replicas, which are services of one node or two",
}


def carry_nodes(carried: Carried, theirs: Mapping[str, Any], flags: dict[str, Any], executor: str) -> dict[str, Any]:
    """Take port, ranks and executor out of the flags, and return them as keys of `serve`."""
    serve = _port(carried, flags)
    executor = flags.pop("distributed-executor-backend", executor)
    sizes = {axis: _size(flags.pop(axis, 1)) for axis in AXES}
    for axis, size in sizes.items():
        if size != 1 and (axis, size) != (AXES[0], 2):
            carried.refuse(carried.flag_line(axis), f"{axis} {size}", SPLIT[axis])
    ranks = sizes[AXES[0]]
    if ranks == 2:
        serve |= {"tensor_parallel": 2, "executor": executor if executor in ("ray", "mp") else "ray"}
    if all(size == 1 for size in sizes.values()) or ranks == 2:
        _count(carried, theirs, 2 if ranks == 2 else 1)
    return serve


def _size(given: Any) -> Any:
    """Return a size as a number, also where YAML has it in quotes."""
    return int(given) if isinstance(given, str) and given.isdecimal() else given


def _port(carried: Carried, flags: dict[str, Any]) -> dict[str, Any]:
    if (port := _size(flags.pop("port", None))) is None:
        return {}
    line = (
        carried.line(("defaults", "port"))
        if ("defaults", "port") in carried.source.lines
        else carried.flag_line("port")
    )
    if isinstance(port, int) and LOWEST_PORT <= port <= HIGHEST_PORT:
        carried.lines["serve", "port"] = line
        return {"port": port}
    why = f"expected a port from {LOWEST_PORT} to {HIGHEST_PORT}; the recipe has the default 8000"
    carried.leave(line, f"port {port}", why, "loss")
    return {}


def _count(carried: Carried, theirs: Mapping[str, Any], ranks: int) -> None:
    """Refuse a count of nodes that contradicts the number of ranks."""
    least = 2 if theirs.get("cluster_only") is True or theirs.get("mode") == "cluster" else 1
    most = 1 if theirs.get("solo_only") is True or theirs.get("mode") == "solo" else None
    counts = {"min_nodes": _size(theirs.get("min_nodes", 1)), "max_nodes": _size(theirs.get("max_nodes"))}
    for key, count in counts.items():
        if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
            carried.refuse(carried.line((key,)), key, f"expected a number of nodes, got {count!r}")
            return
    for key, low, high in (
        ("min_nodes", counts["min_nodes"], None),
        ("max_nodes", 1, counts["max_nodes"]),
        ("cluster_only" if theirs.get("cluster_only") else "mode", least, None),
        ("solo_only" if theirs.get("solo_only") else "mode", 1, most),
    ):
        if ranks < low or (high is not None and ranks > high):
            asks = f"{theirs[key]}, while tensor parallelism over {ranks} needs {ranks} node{'s' * (ranks > 1)}"
            carried.refuse(carried.line((key,)), key, f"{asks}: state one of them")
