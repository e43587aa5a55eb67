"""Convert recipes of spark-vllm-docker (version 1) and sparkrun (version 2) to recipes of sparkops.

Sources of the formats: recipes/README.md of eugr/spark-vllm-docker and RECIPES.md of spark-arena/sparkrun.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sparkops import redact
from sparkops.config import source
from sparkops.config.engine import default_share
from sparkops.config.fields import as_name
from sparkops.config.source import Source
from sparkops.convert import command_lines, vllm_023
from sparkops.convert.conversion import DEFAULTS, Conversion
from sparkops.convert.recipe_keys import NODE_KEYS, READ_KEYS, SHELL, convert_nodes, flags_of_mods, omit_keys
from sparkops.convert.server_flags import convert_flags, convert_variables

SHOWN_GIB, HOST_GIB = 121.7, 5.6
"""Memory in GiB of a Spark and of the host side, as in the shipped recipes."""
VLLM = f"vllm=={vllm_023.RELEASE}"
IMAGE = {
    "template": "vllm-wheels",
    "base": "nvidia/cuda:13.0.2-devel-ubuntu24.04",
    "torch": {"version": "2.11.0", "backend": "cu130", "local_version": False},
    "vllm": VLLM,
}
"""Base, torch and vLLM of 122b-autoround. The original's image is a moving tag, or built by a script of its project."""
RAY = "ray[default]==2.60.0"
RUNTIMES = {"vllm": "mp", "vllm-distributed": "mp", "eugr-vllm": "mp", "vllm-ray": "ray"}
"""The executor for two nodes of each vLLM runtime."""
STRICT = READ_KEYS - {"name", "description"} | {"defaults", "env", "mods", "pre_exec", "draft_model", *NODE_KEYS}
"""Keys that affect the engine. Ambiguous values of other keys are accepted."""
NEWER = "unknown version, read as version 2 as in sparkrun"
NO_REPOSITORY = "is not a repository: expected OWNER/NAME"
SOLO = "spark-vllm-docker runs a recipe with `solo_only` on one node"


def read(file: Path) -> Source:
    """Read a recipe of another tool. Raises ConfigError for an ambiguous key that affects the engine."""
    return source.read(file, strict=STRICT)


def convert(source: Source, text: str, name: str, without: Collection[str] = ()) -> Conversion:
    """Return a recipe of sparkops with its omissions; `refusals` are the reasons why it cannot start.

    `without` are flags and keys that may be missing. Raises ConfigError for a file that is not a recipe of these tools,
    or whose engine is not vLLM.
    """
    original = source.data
    if not isinstance(original, dict):
        raise source.fail((), "expected a recipe: a mapping of keys to values")
    if "recipe_version" not in original and (isinstance(original.get("image"), dict) or "extends" in original):
        own = source.fail((), "a recipe of sparkops already: nothing to convert")
        own.next_step = f"sparkops show {source.file}"
        raise own
    version = str(original.get("recipe_version", "2"))
    if not version.isdecimal():
        got = original["recipe_version"]
        raise source.fail(("recipe_version",), f"expected 1 (spark-vllm-docker) or 2 (sparkrun), got {got!r}")
    runtime = original.get("runtime", "vllm")
    if runtime not in RUNTIMES:
        raise source.fail(("runtime",), f"expected a vLLM runtime: {', '.join(RUNTIMES)}; got {runtime!r}")
    conversion = Conversion(source, original, text, without, mods=flags_of_mods(original.get("mods")))
    if version not in ("1", "2"):
        conversion.omit(conversion.line(("recipe_version",)), f"recipe_version {version}", NEWER, "loss")
    model, flags, unknown = _server(conversion, escapes=version == "1")
    serve = convert_nodes(conversion, flags, RUNTIMES[runtime])
    serve["args"] = convert_flags(conversion, flags, model, unknown)
    if env := convert_variables(conversion, _mapping(original.get("env"))):
        serve["env"] = env
    omit_keys(conversion)
    _fill(conversion, name, model, serve)
    return conversion


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _server(conversion: Conversion, *, escapes: bool) -> tuple[str, dict[str, Any], frozenset[str]]:
    """Return the model, the flags of vLLM, and the slots of the command without a value.

    Without a command the flags are those of `defaults`.
    """
    values = _values(conversion, escapes=escapes)
    command, model = conversion.original.get("command"), str(conversion.original.get("model") or "")
    if not isinstance(command, str):
        names = {key: flag for flag, key in DEFAULTS.items()}
        flags = {names.get(key, command_lines.normal(key)): value for key, value in values.items() if key != "model"}
        return model, {flag: _as_json(value) for flag, value in flags.items()}, frozenset()
    try:
        text, unknown = _filled(command, values, escapes=escapes)
        before, argv, after = command_lines.serve(command_lines.words(text))
        flags = dict(command_lines.flags(argv))
    except ValueError as error:
        raise conversion.source.fail(("command",), f"invalid command: {error}") from None
    if not argv:
        raise conversion.source.fail(("command",), "expected `vllm serve MODEL`")
    for slot in unknown:
        conversion.omit(conversion.line(("command",), f"{{{slot}}}"), f"{{{slot}}}", "no value in `defaults`")
    for words in filter(None, (before, after)):
        conversion.omit(conversion.line(("command",), words[0]), redact.shell(words), SHELL, "loss")
    return _model(conversion, flags), flags, frozenset(unknown)


def _values(conversion: Conversion, *, escapes: bool) -> dict[str, Any]:
    """Return the values of slots. In version 1, `solo_only` overrides the number of ranks in `defaults`."""
    original = conversion.original
    values = {**_mapping(original.get("defaults")), **({"model": original["model"]} if "model" in original else {})}
    ranks = values.get("tensor_parallel", 1)
    if escapes and original.get("solo_only") is True and ranks != 1:
        conversion.omit(conversion.line(("defaults", "tensor_parallel")), f"tensor_parallel {ranks}", SOLO)
        values["tensor_parallel"] = 1
    return values


def _filled(command: str, values: Mapping[str, Any], *, escapes: bool) -> tuple[str, list[str]]:
    """Return a command with its slots filled. sparkrun also fills slots inside values."""
    text, unknown = command_lines.filled(command, values, escapes=escapes)
    for _ in range(0 if escapes else 5):
        filled, unknown = command_lines.filled(text, values, escapes=False)
        if filled == text:
            break
        text = filled
    return text, unknown


def _as_json(value: Any) -> Any:
    return command_lines.value([value]) if isinstance(value, str) and value[:1] in ("{", "[") else value


def _model(conversion: Conversion, flags: dict[str, Any]) -> str:
    """Return the model that the command serves; the value of `model` if the command has a directory."""
    named = str(conversion.original.get("model") or "")
    option = flags.pop("model", None)
    served = flags.pop("", option)
    if served is None or served == named:
        return named
    line = conversion.line(("command",), str(served[1] if isinstance(served, list) else served))
    if isinstance(served, list):
        words = " ".join(map(str, served))
        conversion.omit(line, "command", f"expected one model after `vllm serve`, got {words}", "refusal")
        return named or str(served[0])
    directory = str(served).startswith(("/", ".", "~", "{"))
    if directory and named:
        conversion.omit(line, str(served), f"path in the original's container; the model is {named}")
    elif directory:
        reason = f"{served} is a path in the original's container: expected OWNER/NAME, or the key `model`"
        conversion.omit(line, "model", reason, "refusal")
    elif named:
        conversion.omit(
            conversion.line(("model",)), "model", f"the command serves {served}, not {named}", "loss", "model"
        )
    return named if directory and named else str(served)


def _fill(conversion: Conversion, name: str, model: str, serve: dict[str, Any]) -> None:
    """Add the other keys of a recipe, and a comment for each guessed key."""
    original = conversion.original
    if not model:
        raise conversion.source.fail((), "no model: expected the key `model`, or `vllm serve MODEL`")
    share = serve["args"].get("gpu-memory-utilization", default_share("vllm", VLLM))
    metadata = _mapping(original.get("metadata"))
    described = original.get("description") or metadata.get("description") or original.get("name")
    weights = {"id": model, "path": model.rstrip("/").rpartition("/")[2].partition(":")[0]}
    weights |= {"revision": str(original["model_revision"])} if original.get("model_revision") else {}
    claim = round(float(share) * SHOWN_GIB + HOST_GIB) if isinstance(share, int | float) else round(SHOWN_GIB)
    conversion.lines["model",] = conversion.line(("model",) if original.get("model") == model else ("command",))
    if "/" not in model:
        conversion.omit(conversion.lines["model",], "model", f"{model} {NO_REPOSITORY}", "loss", "model")
    packages = [*([RAY] if serve.get("executor") == "ray" else []), *conversion.data.pop("packages", [])]
    conversion.data = {
        "name": name,
        "service": as_name(weights["path"]),
        "description": " ".join(str(described or model).split()),
        "image": {**IMAGE, **({"packages": packages} if packages else {})},
        "model": weights,
        "serve": serve,
        "memory": {
            "claim_gib": claim,
            "basis": f"{share} of a Spark's {SHOWN_GIB} GiB, plus {HOST_GIB} GiB of the host side; not measured",
        },
        "verified": _verified(conversion),
    }
    for key, value in conversion.data.items():
        conversion.lines.setdefault((key,), conversion.lines["model",])
        for inner in value if isinstance(value, dict) else ():
            conversion.lines.setdefault((key, inner), conversion.lines[key,])
    conversion.guessed = {
        "service": "guessed from the model's name; clients use this name",
        "image": "guessed: the image of 122b-autoround; the original uses "
        + " ".join(str(original.get("container", "an unnamed one")).split()),
        "memory": "guessed from gpu-memory-utilization",
    }


def _verified(conversion: Conversion) -> str:
    """Return the text of `verified`: nothing was run, and the missing settings of the original."""
    missing = ", ".join(dict.fromkeys(loss.key for loss in conversion.losses))
    return f"Nothing; imported from {conversion.source.file.name}" + (f" without: {missing}." if missing else ".")
