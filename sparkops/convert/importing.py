"""Recipes of spark-vllm-docker (version 1) and of sparkrun (version 2) as recipes of sparkops.

Their formats are public: recipes/README.md of eugr/spark-vllm-docker and RECIPES.md of spark-arena/sparkrun.
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
from sparkops.convert.import_args import carry_args, carry_env
from sparkops.convert.import_keys import NODE_KEYS, READ_KEYS, SHELL, carry_nodes, of_mods, omit_keys

SHOWN_GIB, HOST_GIB = 121.7, 5.6
"""Memory in GiB of a Spark, and of the host side (both as in the shipped recipes)."""
VLLM = f"vllm=={vllm_023.RELEASE}"
IMAGE = {
    "template": "vllm-wheels",
    "base": "nvidia/cuda:13.0.2-devel-ubuntu24.04",
    "torch": {"version": "2.11.0", "backend": "cu130", "local_version": False},
    "vllm": VLLM,
}
"""Base, torch and vLLM of 122b-autoround: the original's tag moves, or a script of that project builds the image."""
RAY = "ray[default]==2.60.0"
RUNTIMES = {"vllm": "mp", "vllm-distributed": "mp", "eugr-vllm": "mp", "vllm-ray": "ray"}
"""The runtimes that are vLLM, each with its executor for two nodes."""
STRICT = READ_KEYS - {"name", "description"} | {"defaults", "env", "mods", "pre_exec", "draft_model", *NODE_KEYS}
"""Keys whose values decide what runs. Ambiguous values of other keys are accepted."""
NEWER = "it is read as version 2, as sparkrun reads it"
NO_REPOSITORY = "names no repository, so no node can fetch it: expected OWNER/NAME"
SOLO = "spark-vllm-docker runs a recipe with `solo_only` on one node"


def read(file: Path) -> Source:
    """Read a recipe of another tool. Raises ConfigError where a key that decides what runs is unclear."""
    return source.read(file, strict=STRICT)


def carry(source: Source, text: str, name: str, without: Collection[str] = ()) -> Conversion:
    """Return a recipe of sparkops and the parts that it omits; `refusals` say why it would not start.

    `without` are flags and keys that may be missing. Raises ConfigError for a file that is no recipe of these tools, or
    is for another engine than vLLM.
    """
    original = source.data
    if not isinstance(original, dict):
        raise source.fail((), "expected a recipe: a mapping of keys to values")
    version = str(original.get("recipe_version", "2"))
    if not version.isdecimal():
        got = original["recipe_version"]
        raise source.fail(("recipe_version",), f"expected 1 (spark-vllm-docker) or 2 (sparkrun), got {got!r}")
    runtime = original.get("runtime", "vllm")
    if runtime not in RUNTIMES:
        raise source.fail(("runtime",), f"expected one that is vLLM: {', '.join(RUNTIMES)}; got {runtime!r}")
    conversion = Conversion(source, original, text, without, mods=of_mods(original.get("mods")))
    if version not in ("1", "2"):
        conversion.omit(conversion.line(("recipe_version",)), f"recipe_version {version}", NEWER, "loss")
    model, flags, unknown = _server(conversion, escapes=version == "1")
    serve = carry_nodes(conversion, flags, RUNTIMES[runtime])
    serve["args"] = carry_args(conversion, flags, model, unknown)
    if env := carry_env(conversion, _mapping(original.get("env"))):
        serve["env"] = env
    omit_keys(conversion)
    _fill(conversion, name, model, serve)
    return conversion


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _server(conversion: Conversion, *, escapes: bool) -> tuple[str, dict[str, Any], frozenset[str]]:
    """Return the model, each flag that vLLM would have got, and the slots of the command without a value.

    The flags are those of the command, or `defaults` if there is none.
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
        raise conversion.source.fail(("command",), f"cannot be read: {error}") from None
    if not argv:
        raise conversion.source.fail(("command",), "expected `vllm serve MODEL` in it")
    for slot in unknown:
        conversion.omit(conversion.line(("command",), f"{{{slot}}}"), f"{{{slot}}}", "`defaults` has no value for it")
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
    """Return the model that the command serves; `model` names it if the command names a directory."""
    named = str(conversion.original.get("model") or "")
    option = flags.pop("model", None)
    served = flags.pop("", option)
    if served is None or served == named:
        return named
    line = conversion.line(("command",), str(served[1] if isinstance(served, list) else served))
    if isinstance(served, list):
        words = " ".join(map(str, served))
        conversion.omit(line, "command", f"expected one model behind `vllm serve`, got {words}", "refusal")
        return named or str(served[0])
    directory = str(served).startswith(("/", ".", "~", "{"))
    if directory and named:
        conversion.omit(line, str(served), f"it is a path of their container; the model is {named}")
    elif directory:
        conversion.omit(line, "model", f"{served} is a path of their container, expected `model` or a name", "refusal")
    elif named:
        conversion.omit(
            conversion.line(("model",)), "model", f"the command serves {served}, not {named}", "loss", "model"
        )
    return named if directory and named else str(served)


def _fill(conversion: Conversion, name: str, model: str, serve: dict[str, Any]) -> None:
    """Add the other keys of a recipe, and a comment to each that is guessed."""
    original = conversion.original
    if not model:
        raise conversion.source.fail((), "it names no model: neither `model` nor `vllm serve MODEL`")
    share = serve["args"].get("gpu-memory-utilization", default_share("vllm", VLLM))
    described = (
        original.get("description") or _mapping(original.get("metadata")).get("description") or original.get("name")
    )
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
            "basis": f"{share} of a Spark's {SHOWN_GIB} GiB, and {HOST_GIB} of the host side; not measured",
        },
        "verified": _verified(conversion),
    }
    for key, value in conversion.data.items():
        conversion.lines.setdefault((key,), conversion.lines["model",])
        for inner in value if isinstance(value, dict) else ():
            conversion.lines.setdefault((key, inner), conversion.lines[key,])
    conversion.guessed = {
        "service": "guessed from the model's name; it is what clients call",
        "image": "guessed: that of 122b-autoround. Theirs was "
        + " ".join(str(original.get("container", "not said")).split()),
        "memory": "guessed from gpu-memory-utilization",
    }


def _verified(conversion: Conversion) -> str:
    """Return that nothing was run, and which parts of the original are missing."""
    missing = ", ".join(dict.fromkeys(loss.key for loss in conversion.losses))
    return f"Nothing; imported from {conversion.source.file.name}" + (f" without: {missing}." if missing else ".")
