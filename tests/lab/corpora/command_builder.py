"""Compare imports with vllm-project's own program: `python -m tests.lab.corpora.command_builder CHECKOUT`.

CHECKOUT is one of vllm-project/recipes in which `node scripts/build-recipes-api.mjs` has run: public/ has what its
command builder generates for each variant and hardware. Model, image, flags and variables of each variant for a DGX
Spark are compared with what import makes of it. What import lists as not imported may be missing, and placeholders such
as $IFACE_NAME. Fails on a difference.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sparkops.errors import ConfigError
from sparkops.operator.convert import command_lines, other_tools, vllm_project
from sparkops.operator.convert.conversion import Choices, Conversion
from sparkops.operator.convert.variants import AS_WRITTEN

SET_BY_SPARKOPS = frozenset({"tensor-parallel-size", "nnodes", "node-rank", "master-addr", "headless"})


def arguments(generated: Mapping[str, Any]) -> list[str]:
    """Return the words of the command on the only node, or on the first one."""
    words: list[str] = generated.get("argv") or generated["head_argv"]
    return words


def differences(conversion: Conversion, generated: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between an import and what the builder generates."""
    _, _, model, *argv = arguments(generated)
    data = conversion.data
    listed = {omission.key for omission in conversion.omissions}
    flags = {name: value for name, value in command_lines.flags(argv) if name not in SET_BY_SPARKOPS | listed}
    env = {name: value for name, value in generated["env"].items() if not str(value).startswith("$")}
    env = {name: value for name, value in env.items() if f"env.{name}" not in listed}
    args = {name: json.loads(value) if _is_json(value) else value for name, value in data["serve"]["args"].items()}
    pairs = {
        "model": (model, data["model"]["id"]),
        "image": (generated["docker_image"], data["image"]["use"]),
        "nodes": (int(generated["node_count"]), data["serve"].get("tensor_parallel", 1)),
        **{f"--{name}": (flags.get(name), args.get(name)) for name in {*flags, *args}},
        **{
            name: (env.get(name), data["serve"].get("env", {}).get(name))
            for name in {*env, *data["serve"].get("env", {})}
        },
    }
    for name, (theirs, ours) in sorted(pairs.items()):
        if theirs != ours and not (name.startswith("--spec") and _same_draft(theirs, ours)):
            yield f"{name}: the builder has {theirs!r}, the import {ours!r}"


def _is_json(value: object) -> bool:
    return isinstance(value, str) and value.startswith("{")


def _same_draft(theirs: object, ours: object) -> bool:
    """Return whether two speculative configurations differ in the directory of the draft only."""
    if not isinstance(theirs, dict) or not isinstance(ours, dict) or "model" not in theirs:
        return False
    directory = f"/models/{str(theirs['model']).rpartition('/')[2]}"
    return {**theirs, "model": directory} == ours


def variants(file: Path) -> list[str]:
    """Return the named variants of a recipe that import offers; none for one that has no names or cannot be read."""
    try:
        data = (read := other_tools.read(file)).data
        if not isinstance(data, dict) or not isinstance(data.get("variants"), dict):
            return []
        if not vllm_project.is_recipe(data):
            return [AS_WRITTEN, *data["variants"]]
        vllm_project.translate(read, "?")
    except ConfigError as error:
        listed = str(error).partition("no variant ?: ")[2]
        return [one.split(" (")[0] for one in listed.split("), ")] if listed else []
    return []


def main() -> int:
    """Compare every variant. Returns 1 if one differs."""
    checkout = Path(sys.argv[1])
    generated: dict[tuple[str, str], Mapping[str, Any]] = {}
    for page in checkout.glob("public/*/*/hw/dgx_spark_gb10.json"):
        rendering = json.loads(page.read_text())
        generated[arguments(rendering)[2], rendering["variant"]] = rendering
    count, absent, failed = 0, 0, 0
    for file in sorted(checkout.glob("models/*/*.yaml")):
        for variant in variants(file):
            conversion = other_tools.convert(
                other_tools.read(file), file.read_text(), "recipe", Choices(variant=variant)
            )
            rendering = generated.get((conversion.data["model"]["id"], variant), {})
            found = [*differences(conversion, rendering)] if rendering else []
            count, absent, failed = count + 1, absent + (not rendering), failed + bool(found)
            for line in found:
                print(f"{file.relative_to(checkout)}, {variant}: {line}")
    equal = count - absent - failed
    print(f"{count} variants for a DGX Spark: {equal} equal, {failed} differ, {absent} without a page of their own")
    return int(bool(failed or not count))


if __name__ == "__main__":
    sys.exit(main())
