"""Recipes of spark-vllm-docker (version 1) and of sparkrun (version 2) as ours, and what could not be carried over.

Their forms are public: recipes/README.md of eugr/spark-vllm-docker and RECIPES.md of spark-arena/sparkrun.
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
from sparkops.convert.carried import DEFAULTS, Carried
from sparkops.convert.import_args import carry_args, carry_env
from sparkops.convert.import_keys import SHELL, THEIRS, leave_keys, of_mods
from sparkops.convert.import_nodes import NODE_KEYS, carry_nodes

SHOWN_GIB, HOST_GIB = 121.7, 5.6
"""Memory in GiB that a Spark shows, and what the host side takes beside it (both as in our recipes)."""
VLLM = f"vllm=={vllm_023.RELEASE}"
IMAGE = {
    "template": "vllm-wheels",
    "base": "nvidia/cuda:13.0.2-devel-ubuntu24.04",
    "torch": {"version": "2.11.0", "backend": "cu130", "local_version": False},
    "vllm": VLLM,
}
"""Base, torch and vLLM of 122b-autoround: theirs is a name that moves, or is built by a script of that project."""
RAY = "ray[default]==2.60.0"
RUNTIMES = {"vllm": "mp", "vllm-distributed": "mp", "eugr-vllm": "mp", "vllm-ray": "ray"}
"""The runtimes that are vLLM, and what joins two nodes there."""
READ = THEIRS - {"name", "description"} | {"defaults", "env", "mods", "pre_exec", "draft_model", *NODE_KEYS}
"""Keys whose values decide what runs: read strictly. Odd values of any other key do not matter."""
NEWER = "it is read as version 2, as sparkrun reads it"
NO_REPOSITORY = "names no repository, so no node can fetch it: expected OWNER/NAME"
SOLO = "spark-vllm-docker runs a recipe with `solo_only` on one node"


def read(file: Path) -> Source:
    """Read a recipe of another tool. Raises ConfigError where a key that decides what runs is unclear."""
    return source.read(file, strict=READ)


def carry(source: Source, text: str, name: str, without: Collection[str] = ()) -> Carried:
    """Return a recipe of sparkops and the parts that it leaves out; `refusals` say why it would not start.

    `without` are flags and keys that may be missing. Raises ConfigError for a file that is no recipe of theirs, or is
    for another engine than vLLM.
    """
    theirs = source.data
    if not isinstance(theirs, dict):
        raise source.fail((), "expected a recipe: a mapping of keys to values")
    version = str(theirs.get("recipe_version", "2"))
    if not version.isdecimal():
        raise source.fail(
            ("recipe_version",), f"expected 1 (spark-vllm-docker) or 2 (sparkrun), got {theirs['recipe_version']!r}"
        )
    runtime = theirs.get("runtime", "vllm")
    if runtime not in RUNTIMES:
        raise source.fail(("runtime",), f"expected one that is vLLM: {', '.join(RUNTIMES)}; got {runtime!r}")
    carried = Carried(source, text, without, mods=of_mods(theirs.get("mods")))
    if version not in ("1", "2"):
        carried.leave(carried.line(("recipe_version",)), f"recipe_version {version}", NEWER, "loss")
    model, flags, unknown = _server(carried, theirs, escapes=version == "1")
    serve = carry_nodes(carried, theirs, flags, RUNTIMES[runtime])
    serve["args"] = carry_args(carried, flags, model, unknown)
    if env := carry_env(carried, _mapping(theirs.get("env"))):
        serve["env"] = env
    leave_keys(carried, theirs)
    _whole(carried, theirs, name, model, serve)
    return carried


def _mapping(given: object) -> dict[str, Any]:
    return given if isinstance(given, dict) else {}


def _server(
    carried: Carried, theirs: Mapping[str, Any], *, escapes: bool
) -> tuple[str, dict[str, Any], frozenset[str]]:
    """Return the model, each flag that vLLM would have got, and the slots of the command without a value.

    The flags are those of the command, or `defaults` where there is none.
    """
    values = _values(carried, theirs, escapes=escapes)
    command, model = theirs.get("command"), str(theirs.get("model") or "")
    if not isinstance(command, str):
        names = {key: flag for flag, key in DEFAULTS.items()}
        given = {names.get(key, command_lines.normal(key)): value for key, value in values.items() if key != "model"}
        return model, {key: _as_json(value) for key, value in given.items()}, frozenset()
    try:
        text, unknown = _filled(command, values, escapes=escapes)
        before, argv, after = command_lines.serve(command_lines.words(text))
        flags = dict(command_lines.flags(argv))
    except ValueError as error:
        raise carried.source.fail(("command",), f"cannot be read: {error}") from None
    if not argv:
        raise carried.source.fail(("command",), "expected `vllm serve MODEL` in it")
    for slot in unknown:
        carried.leave(carried.line(("command",), f"{{{slot}}}"), f"{{{slot}}}", "`defaults` has no value for it")
    for some in filter(None, (before, after)):
        carried.leave(carried.line(("command",), some[0]), redact.shell(some), SHELL, "loss")
    return _model(carried, theirs, flags), flags, frozenset(unknown)


def _values(carried: Carried, theirs: Mapping[str, Any], *, escapes: bool) -> dict[str, Any]:
    """Return the values of slots. In version 1, `solo_only` overrides the number of ranks in `defaults`."""
    values = {**_mapping(theirs.get("defaults")), **({"model": theirs["model"]} if "model" in theirs else {})}
    ranks = values.get("tensor_parallel", 1)
    if escapes and theirs.get("solo_only") is True and ranks != 1:
        carried.leave(carried.line(("defaults", "tensor_parallel")), f"tensor_parallel {ranks}", SOLO)
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


def _model(carried: Carried, theirs: Mapping[str, Any], flags: dict[str, Any]) -> str:
    """Return the model that the command serves; `model` names it where the command names a directory."""
    named = str(theirs.get("model") or "")
    option = flags.pop("model", None)
    given = flags.pop("", option)
    if given is None or given == named:
        return named
    line = carried.line(("command",), str(given[1] if isinstance(given, list) else given))
    if isinstance(given, list):
        words = " ".join(map(str, given))
        carried.leave(line, "command", f"expected one model behind `vllm serve`, got {words}", "refusal")
        return named or str(given[0])
    directory = str(given).startswith(("/", ".", "~", "{"))
    if directory and named:
        carried.leave(line, str(given), f"it is a path of their container; the model is {named}")
    elif directory:
        carried.leave(
            line, "model", f"{given} is a path of their container, expected `model` or the name of one", "refusal"
        )
    elif named:
        carried.leave(carried.line(("model",)), "model", f"the command serves {given}, not {named}", "loss", "model")
    return named if directory and named else str(given)


def _whole(carried: Carried, theirs: Mapping[str, Any], name: str, model: str, serve: dict[str, Any]) -> None:
    """Add the other keys of a recipe, and a comment to each that is guessed."""
    if not model:
        raise carried.source.fail((), "it names no model: neither `model` nor `vllm serve MODEL`")
    share = serve["args"].get("gpu-memory-utilization", default_share("vllm", VLLM))
    described = theirs.get("description") or _mapping(theirs.get("metadata")).get("description") or theirs.get("name")
    weights = {"id": model, "path": model.rstrip("/").rpartition("/")[2].partition(":")[0]}
    weights |= {"revision": str(theirs["model_revision"])} if theirs.get("model_revision") else {}
    claim = round(float(share) * SHOWN_GIB + HOST_GIB) if isinstance(share, int | float) else round(SHOWN_GIB)
    carried.lines["model",] = carried.line(("model",) if theirs.get("model") == model else ("command",))
    if "/" not in model:
        carried.leave(carried.lines["model",], "model", f"{model} {NO_REPOSITORY}", "loss", "model")
    packages = [*([RAY] if serve.get("executor") == "ray" else []), *carried.data.pop("packages", [])]
    carried.data = {
        "name": name,
        "service": as_name(weights["path"]),
        "description": " ".join(str(described or model).split()),
        "image": {**IMAGE, **({"packages": packages} if packages else {})},
        "model": weights,
        "serve": serve,
        "memory": {
            "claim_gib": claim,
            "why": f"{share} of the {SHOWN_GIB} GiB that a Spark shows, and {HOST_GIB} of the host side; not measured",
        },
        "verified": _verified(carried),
    }
    for key, value in carried.data.items():
        carried.lines.setdefault((key,), carried.lines["model",])
        for inner in value if isinstance(value, dict) else ():
            carried.lines.setdefault((key, inner), carried.lines[key,])
    carried.guessed = {
        "service": "guessed from the model's name; it is what clients call",
        "image": "guessed: that of 122b-autoround. Theirs was "
        + " ".join(str(theirs.get("container", "not said")).split()),
        "memory": "guessed from gpu-memory-utilization",
    }


def _verified(carried: Carried) -> str:
    """Return that nothing was run, and which parts of their recipe are missing."""
    missing = ", ".join(dict.fromkeys(left.key for left in carried.losses))
    return f"Nothing; imported from {carried.source.file.name}" + (f" without: {missing}." if missing else ".")
