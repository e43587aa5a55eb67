"""Keys and mods of another tool's recipe: its nodes become keys of `serve`, the others are omitted with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import basename
from typing import Any

from sparkops.convert.conversion import Conversion, Kind

NODE_KEYS = ("mode", "solo_only", "cluster_only", "min_nodes", "max_nodes")
LOWEST_PORT, HIGHEST_PORT = 1024, 65000
SPLIT = {
    "tensor-parallel-size": "sparkops joins at most two nodes into one replica",
    "pipeline-parallel-size": "a replica is split over nodes by tensor_parallel only",
    "data-parallel-size": "the gateway shares requests out over replicas, which are services of one node or two",
}
"""Flags of parallelism, each with the reason why a size is refused."""
READ_KEYS = frozenset({"recipe_version", "runtime", "name", "model", "model_revision", "description", "command"})
SHELL = "no shell command runs in a container here; make it a mod of the image"
BUILT = "the image is built from `image`"
PRIVILEGES = "sparkops starts containers with rights of its own"
WHY: Mapping[str, tuple[str, Kind]] = {
    "container": ("an image is known by what it is made from; check `image`", "loss"),
    "containers": ("every node runs the same image", "note"),
    "build_args": ("they choose a version or a Dockerfile of that project; check `image`", "loss"),
    **dict.fromkeys(("pre_exec", "post_exec", "post_commands"), (SHELL, "loss")),
    "stop_after_post": (SHELL, "note"),
    "builder": (BUILT, "note"),
    **dict.fromkeys(("builder_config", "runtime_version"), (BUILT, "loss")),
    "runtime_config": ("its keys are of that program", "loss"),
    **dict.fromkeys(("executor", "executor_config"), (PRIVILEGES, "note")),
    "readiness": ("a start ends when it stands still, not at a fixed time; see `probe`", "note"),
    "metadata": ("it describes, and nothing here reads it", "note"),
    "maintainer": ("it describes, and nothing here reads it", "note"),
    "benchmark": ("`probe.smoke` measures", "note"),
    "distribution_config": ("`sparkops models copy` does it", "note"),
    "draft_model": ("it is a second checkpoint, and a recipe fetches one", "refusal"),
}
IN_IMAGE = frozenset({"container", "containers", "build_args", "builder", "builder_config", "runtime_version"})
MODS = {
    "fix-qwen3.5-chat-template": "--chat-template unsloth.jinja",
    "fix-qwen3.6-chat-template": "--chat-template fixed_chat_template.jinja",
    "nemotron-nano": "--reasoning-parser nano_v3",
    "nemotron-super": "--reasoning-parser super_v3",
    "gpu-mem-util-gb": "--gpu-memory-utilization-gb",
}
"""Flags that mods of spark-vllm-docker provide (mods/NAME/run.sh there)."""
SUPPORT = frozenset({"diffusiongemma", "step-3.7-flash", "inkling-sm12-paged-kv", "glm-5.2"})
"""Mods of that project without which vLLM does not support a model."""


def of_mods(mods: object) -> dict[str, str]:
    """Return the mods of a recipe by name, each with the flags that it provides; empty if that is unknown."""
    names = [basename(str(mod)) for mod in mods] if isinstance(mods, list) else []
    return {name: MODS.get(name, "") for name in names}


def omit_keys(conversion: Conversion) -> None:
    """Add each mod and each unsupported key to the omissions."""
    for number, (name, flags) in enumerate(conversion.mods.items()):
        line = conversion.line(("mods", number), name)
        provides = f"it provides {flags}" if flags else "write it as a mod of sparkops"
        kind: Kind = "refusal" if name in SUPPORT else "loss"
        why = "vLLM has no support for the model without it" if kind == "refusal" else provides
        conversion.omit(line, f"mods/{name}", f"a mod of that project is a shell script; {why}", kind, "image")
    for key, value in conversion.original.items():
        if key not in READ_KEYS | {"defaults", "env", "mods", *NODE_KEYS} and value not in (None, "", [], {}):
            why, kind = WHY.get(key, ("it is no key of a recipe that we know", "loss"))
            conversion.omit(conversion.line((key,)), key, why, kind, "image" if key in IN_IMAGE else "serve")


def carry_nodes(conversion: Conversion, flags: dict[str, Any], executor: str) -> dict[str, Any]:
    """Take port, ranks and executor out of the flags, and return them as keys of `serve`."""
    serve = _port(conversion, flags)
    executor = flags.pop("distributed-executor-backend", executor)
    sizes = {axis: _size(flags.pop(axis, 1)) for axis in SPLIT}
    for axis, size in sizes.items():
        if size != 1 and (axis, size) != ("tensor-parallel-size", 2):
            conversion.refuse(conversion.flag_line(axis), f"{axis} {size}", SPLIT[axis])
    ranks = sizes["tensor-parallel-size"]
    if ranks == 2:
        serve |= {"tensor_parallel": 2, "executor": executor if executor in ("ray", "mp") else "ray"}
    if all(size == 1 for size in sizes.values()) or ranks == 2:
        _check_count(conversion, 2 if ranks == 2 else 1)
    return serve


def _size(value: Any) -> Any:
    """Return a size as a number, also if YAML has it in quotes."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _port(conversion: Conversion, flags: dict[str, Any]) -> dict[str, Any]:
    if (port := _size(flags.pop("port", None))) is None:
        return {}
    line = conversion.source.lines.get(("defaults", "port")) or conversion.flag_line("port")
    if isinstance(port, int) and LOWEST_PORT <= port <= HIGHEST_PORT:
        conversion.lines["serve", "port"] = line
        return {"port": port}
    why = f"expected a port from {LOWEST_PORT} to {HIGHEST_PORT}; the recipe has the default 8000"
    conversion.omit(line, f"port {port}", why, "loss")
    return {}


def _check_count(conversion: Conversion, ranks: int) -> None:
    """Refuse a count of nodes that contradicts the number of ranks."""
    original = conversion.original
    least = 2 if original.get("cluster_only") is True or original.get("mode") == "cluster" else 1
    most = 1 if original.get("solo_only") is True or original.get("mode") == "solo" else None
    counts = {"min_nodes": _size(original.get("min_nodes", 1)), "max_nodes": _size(original.get("max_nodes"))}
    for key, count in counts.items():
        if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
            conversion.refuse(conversion.line((key,)), key, f"expected a number of nodes, got {count!r}")
            return
    for key, low, high in (
        ("min_nodes", counts["min_nodes"], None),
        ("max_nodes", 1, counts["max_nodes"]),
        ("cluster_only" if original.get("cluster_only") else "mode", least, None),
        ("solo_only" if original.get("solo_only") else "mode", 1, most),
    ):
        if ranks < low or (high is not None and ranks > high):
            asks = f"{original[key]}, while tensor parallelism over {ranks} needs {ranks} node{'s' * (ranks > 1)}"
            conversion.refuse(conversion.line((key,)), key, f"{asks}: state one of them")
