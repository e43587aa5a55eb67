"""Convert node counts and ports to keys of `serve`; omit mods and all other keys with a reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import basename
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sparkops.config.fields import ImageRef
from sparkops.config.recipe import UNEVEN
from sparkops.config.serve import MOST_RANKS
from sparkops.operator.convert.conversion import Conversion, Kind
from sparkops.operator.convert.mods import TEMPLATE
from sparkops.operator.convert.releases import loads, numbers

NODE_KEYS = ("mode", "solo_only", "cluster_only", "min_nodes", "max_nodes")
LOWEST_PORT, HIGHEST_PORT = 1024, 65000
SPLIT = {
    "tensor-parallel-size": "tensor_parallel",
    "pipeline-parallel-size": "pipeline_parallel",
}
"""Flags that split a model over nodes, with their keys in `serve`."""
REPLICAS = "data-parallel-size"
BACKEND = "distributed-executor-backend"
READ_KEYS = frozenset({"recipe_version", "runtime", "name", "model", "model_revision", "description", "command"})
SHELL = "sparkops runs no shell commands in containers; write a mod of the image"
BUILT = "sparkops builds the image from `image`"
PRIVILEGES = "sparkops sets the rights of its containers"
OMITTED: Mapping[str, tuple[str, Kind]] = {
    "container": ("sparkops builds the image from `image`; check it", "loss"),
    "containers": ("every node runs the same image", "note"),
    "build_args": ("arguments of the original's build script; check `image`", "loss"),
    **dict.fromkeys(("pre_exec", "post_exec", "post_commands"), (SHELL, "loss")),
    "stop_after_post": (SHELL, "note"),
    "builder": (BUILT, "note"),
    **dict.fromkeys(("builder_config", "runtime_version"), (BUILT, "loss")),
    "runtime_config": ("settings of the original's runtime", "loss"),
    **dict.fromkeys(("executor", "executor_config"), (PRIVILEGES, "note")),
    "readiness": ("a start fails after a stall, not after a fixed time; see `probe.startup`", "note"),
    "metadata": ("not used by sparkops", "note"),
    "maintainer": ("not used by sparkops", "note"),
    "benchmark": ("`probe.smoke` measures the speed", "note"),
    "distribution_config": ("`sparkops models copy` distributes weights", "note"),
    "draft_model": (
        "no flag uses this draft: expected speculative-config of vLLM, or speculative-draft-model-path of SGLang",
        "refusal",
    ),
}
IMAGE = TypeAdapter[str](ImageRef)
PUBLISHED = {"vllm-node": "eugr/spark-vllm:latest", "vllm-node-b12x": "eugr/spark-vllm-b12x:latest"}
"""The image that the build script of spark-vllm-docker pulls for each name (build-and-copy.sh at c67ffd9)."""
IN_IMAGE = frozenset({"container", "containers", "build_args", "builder", "builder_config", "runtime_version"})
MODS = {
    "fix-qwen3.5-chat-template": "--chat-template unsloth.jinja",
    "fix-qwen3.6-chat-template": "--chat-template fixed_chat_template.jinja",
    "nemotron-nano": "--reasoning-parser nano_v3",
    "nemotron-super": "--reasoning-parser super_v3",
    "gpu-mem-util-gb": "--gpu-memory-utilization-gb",
}
"""Flags that mods of spark-vllm-docker provide (mods/NAME/run.sh there)."""
SUPPORT = {"diffusiongemma": "diffusion_gemma", "step-3.7-flash": "step3p7", "inkling-sm12-paged-kv": "", "glm-5.2": ""}
"""Mods of spark-vllm-docker without which vLLM does not support a model on this GPU, each with the model type that
newer releases have themselves; empty if none is known to."""
FIX_AUTOROUND, ROPE_KEYS = "fix-qwen3.5-autoround", "transformers5-rope-keys"
"""A mod of spark-vllm-docker, and that of sparkops with the same effect."""
AUTOROUND = re.compile("auto-?round", re.IGNORECASE)
ROPE_KEYS_END = (5, 10)
"""The first Transformers that loads checkpoints of AutoRound without the mod (templates/mods/NAME.py)."""

COPIED = (
    "a file that the mod puts beside the server, where the new recipe has none; if a flag names it, put it beside the "
    "weights and name it below /models"
)


def is_image(text: str) -> bool:
    """Return whether a text names an image."""
    try:
        IMAGE.validate_python(text)
    except ValidationError:
        return False
    return True


def pulled(container: object) -> str:
    """Return the image of an original if a node can pull it; empty for one that the original's owner builds."""
    return container if isinstance(container, str) and "/" in container and is_image(container) else ""


def flags_of_mods(mods: object) -> dict[str, str]:
    """Return the flags that each mod of a recipe provides; empty if unknown."""
    names = [basename(str(mod)) for mod in mods] if isinstance(mods, list) else []
    return {name: MODS.get(name, "") for name in names}


def add_rope_keys(conversion: Conversion, model: str) -> None:
    """Add the mod that a checkpoint of AutoRound needs, as recipes/122b-autoround.yaml has it."""
    wanted = AUTOROUND.search(model) or FIX_AUTOROUND in conversion.mods
    if wanted and not conversion.use and numbers(conversion.release.transformers) < ROPE_KEYS_END:
        conversion.image_mods.append(ROPE_KEYS)


def omit_keys(conversion: Conversion) -> None:
    """Add each mod and each unsupported key to the omissions."""
    for number, (name, flags) in enumerate(conversion.mods.items()):
        line = conversion.line(("mods", number), name)
        if _carried(conversion, line, name):
            continue
        kind: Kind = "refusal" if name in SUPPORT else "loss"
        provides = f"it provides {flags}" if flags else "write it as a mod of sparkops"
        reason = (
            f"the engine does not support the model without it; {_image_with(name)}" if kind == "refusal" else provides
        )
        conversion.omit(line, f"mods/{name}", f"shell script; {reason}", kind, "image")
    for key, value in conversion.original.items():
        if key == "draft_model" and conversion.draft and conversion.draft["id"] == value:
            continue
        if key not in READ_KEYS | {"defaults", "env", "mods", *NODE_KEYS} and value not in (None, "", [], {}):
            reason, kind = OMITTED.get(key, ("unknown key", "loss"))
            if conversion.use and key in IN_IMAGE:
                if value == conversion.use:
                    continue
                reason, kind = f"the image is {conversion.use}", "note"
            conversion.omit(conversion.line((key,)), key, reason, kind, "image" if key in IN_IMAGE else "serve")


def _image_with(name: str) -> str:
    """Return the way on for a mod that only a finished image can have."""
    return f"apply it to the original's image, push that, and import with --use IMAGE --without mods/{name}"


def _carried(conversion: Conversion, line: int, name: str) -> bool:
    """Return whether the new recipe has a mod of the original, or needs none; add it where it has one."""
    known = conversion.model_type
    if known and SUPPORT.get(name) == known.type and not conversion.use and loads(conversion.release, known):
        conversion.omit(
            line, f"mods/{name}", f"vLLM {conversion.release.version} has {known.type} itself", "note", "image"
        )
        return True
    if name == FIX_AUTOROUND:
        # The Transformers of a finished image is unknown, and the mod passes where nothing is to change.
        if conversion.use:
            conversion.image_mods.append(ROPE_KEYS)
        return True
    mod = conversion.beside.get(name)
    if mod is None or name in SUPPORT:
        return False
    for file, content in mod.patches.items():
        conversion.add_mod(f"{name}-{file.removesuffix('.diff').removesuffix('.patch')}.patch", content)
    for file in mod.optional:
        reason = "a diff that is skipped there where it does not apply; add it to ./mods if it applies to this image"
        conversion.omit(line, f"mods/{name}/{file}", reason, "loss", "image")
    for file in mod.copied:
        if not file.endswith(TEMPLATE):  # a flag that names a template takes it
            conversion.omit(line, f"mods/{name}/{file}", COPIED, "loss", "image")
    return mod.whole and not mod.fetched


def convert_nodes(conversion: Conversion, flags: dict[str, Any], executor: str) -> dict[str, Any]:
    """Remove port, ranks and executor from the flags, and return them as keys of `serve`."""
    serve = _port(conversion, flags)
    executor, executors = flags.pop(BACKEND, executor), [*conversion.kind.executors]
    sizes = {axis: _size(flags.pop(axis, 1)) for axis in (*SPLIT, REPLICAS)}
    before = len(conversion.refusals)
    for axis, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            problem = f"expected a whole number from 1, got {size}"
            conversion.refuse(conversion.flag_line(axis), axis, problem)
        elif size != 1 and axis == REPLICAS:
            reason = "not supported; deploy a service for each replica"
            conversion.refuse(conversion.flag_line(axis), f"{axis} {size}", reason)
    if len(conversion.refusals) > before:
        return serve
    tensor, pipeline = (sizes[axis] for axis in SPLIT)
    _check_count(conversion, tensor * pipeline)
    axis = "pipeline-parallel-size" if pipeline > 1 else "tensor-parallel-size"
    if tensor * pipeline > MOST_RANKS:
        reason = f"{tensor} x {pipeline} nodes, expected at most {MOST_RANKS}"
        conversion.refuse(conversion.flag_line(axis), f"{axis} {sizes[axis]}", reason)
    elif tensor & (tensor - 1):
        axis = "tensor-parallel-size"
        conversion.refuse(conversion.flag_line(axis), f"{axis} {tensor}", UNEVEN.format(size=tensor))
    elif tensor * pipeline > 1:
        serve |= {key: sizes[axis] for axis, key in SPLIT.items() if sizes[axis] > 1}
        serve["executor"] = executor if executor in executors else executors[0]
    return serve


def _size(value: Any) -> Any:
    """Return a number that YAML has in quotes; any other value unchanged."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _port(conversion: Conversion, flags: dict[str, Any]) -> dict[str, Any]:
    if (port := _size(flags.pop("port", None))) is None:
        return {}
    line = conversion.source.lines.get(("defaults", "port")) or conversion.flag_line("port")
    if isinstance(port, int) and LOWEST_PORT <= port <= HIGHEST_PORT:
        conversion.lines["serve", "port"] = line
        return {"port": port}
    reason = f"expected a port from {LOWEST_PORT} to {HIGHEST_PORT}; the new recipe uses the default 8000"
    conversion.omit(line, f"port {port}", reason, "loss")
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
        ("min_nodes", counts["min_nodes"] or 1, None),
        ("max_nodes", 1, counts["max_nodes"]),
        ("cluster_only" if original.get("cluster_only") else "mode", least, None),
        ("solo_only" if original.get("solo_only") else "mode", 1, most),
    ):
        if ranks < low or (high is not None and ranks > high):
            needed = f"the parallel sizes, which need {ranks} node{'s' * (ranks > 1)}"
            conversion.refuse(conversion.line((key,)), key, f"{original[key]} contradicts {needed}: change one of them")
