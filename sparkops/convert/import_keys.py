"""Keys and mods of another tool's recipe that no key of a recipe holds: left out, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import basename
from typing import Any

from sparkops.convert.carried import Carried, Kind
from sparkops.convert.import_nodes import NODE_KEYS

THEIRS = frozenset({"recipe_version", "runtime", "name", "model", "model_revision", "description", "command"})
SHELL = "no shell command runs in a container here; make it a mod of the image"
BUILT = "the image is built from `image`"
RIGHTS = "sparkops starts containers with rights of its own"
WHY: Mapping[str, tuple[str, Kind]] = {
    "container": ("an image is known by what it is made from; check `image`", "loss"),
    "containers": ("every node runs the same image", "note"),
    "build_args": ("they choose a version or a Dockerfile of that project; check `image`", "loss"),
    **dict.fromkeys(("pre_exec", "post_exec", "post_commands"), (SHELL, "loss")),
    "stop_after_post": (SHELL, "note"),
    "builder": (BUILT, "note"),
    **dict.fromkeys(("builder_config", "runtime_version"), (BUILT, "loss")),
    "runtime_config": ("its keys are of that program", "loss"),
    **dict.fromkeys(("executor", "executor_config"), (RIGHTS, "note")),
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
"""Mods of that project that add the support of a model to vLLM: without them it does not load."""


def of_mods(given: object) -> dict[str, str]:
    """Return the mods of a recipe by name, each with what it provides; empty where that is not known."""
    names = [basename(str(mod)) for mod in given] if isinstance(given, list) else []
    return {name: MODS.get(name, "") for name in names}


def leave_keys(carried: Carried, theirs: Mapping[str, Any]) -> None:
    """Add each mod and each other key to the parts that are left out."""
    for number, name in enumerate(carried.mods):
        line = carried.line(("mods", number), name)
        provides = f"it provides {carried.mods[name]}" if carried.mods[name] else "write it as a mod of sparkops"
        kind: Kind = "refusal" if name in SUPPORT else "loss"
        why = "vLLM has no support for the model without it" if kind == "refusal" else provides
        carried.leave(line, f"mods/{name}", f"a mod of that project is a shell script; {why}", kind, "image")
    for key in theirs:
        if key not in THEIRS | {"defaults", "env", "mods", *NODE_KEYS} and theirs[key] not in (None, "", [], {}):
            why, kind = WHY.get(key, ("it is no key of a recipe that we know", "loss"))
            carried.leave(carried.line((key,)), key, why, kind, "image" if key in IN_IMAGE else "serve")
