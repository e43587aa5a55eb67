"""Recipes of spark-vllm-docker (version 1) and of sparkrun (version 2) as ours, and what could not be carried over.

Their forms are public: recipes/README.md of eugr/spark-vllm-docker and RECIPES.md of spark-arena/sparkrun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sparkops import redact
from sparkops.config import foreign, opt_in
from sparkops.config.engine import ENGINES, default_share
from sparkops.config.fields import EnvName, Flag, FlagValue, Value, as_name
from sparkops.config.source import Location, Source

SHOWN_GIB, HOST_GIB = 121.7, 5.6
"""Memory in GiB that a Spark shows, and what the host side takes beside it (both as in our recipes)."""
VLLM = "vllm==0.23.0"
IMAGE = {
    "template": "vllm-wheels",
    "base": "nvidia/cuda:13.0.2-devel-ubuntu24.04",
    "torch": {"version": "2.11.0", "backend": "cu130"},
    "vllm": VLLM,
}
"""The image of 122b-autoround: theirs is a name that moves, or is built by a script of that project."""
RAY = {"packages": ["ray[default]==2.60.0"]}
RUNTIMES = {"vllm": "mp", "vllm-distributed": "mp", "eugr-vllm": "mp", "vllm-ray": "ray"}
"""The runtimes that are vLLM, and what joins two nodes there."""
DEFAULTS = {"tensor_parallel": "tensor-parallel-size", "pipeline_parallel": "pipeline-parallel-size"}
"""Keys of `defaults` that are not vLLM's names."""
THEIRS = frozenset({"recipe_version", "name", "model", "model_revision", "description", "command", "defaults", "env"})
SHELL = "no shell command runs in a container here; make it a mod of the image"
BUILT = "the image is built from `image`"
RIGHTS = "sparkops starts containers with rights of its own"
NODES = "serve.tensor_parallel says how many nodes hold one replica"
WHY: Mapping[str, str] = {
    "container": "an image is known by what it is made from; check `image`",
    "containers": "every node runs the same image",
    "build_args": "they choose a version or a Dockerfile of that project; check `image`",
    "mods": "a mod of that project is a shell script; write it as one of ours, which checks what it finds",
    "pre_exec": SHELL,
    "post_exec": SHELL,
    "post_commands": SHELL,
    "stop_after_post": SHELL,
    **dict.fromkeys(("builder", "builder_config", "runtime_version"), BUILT),
    "runtime_config": "its keys are of that program",
    "executor": RIGHTS,
    "executor_config": RIGHTS,
    "readiness": "a start ends when it stands still, not at a fixed time; see `probe`",
    "metadata": "it describes, and nothing here reads it",
    "benchmark": "`probe.smoke` measures",
    "distribution_config": "`sparkops models copy` does it",
    **dict.fromkeys(("mode", "solo_only", "cluster_only", "min_nodes", "max_nodes"), NODES),
}
DROPPED = {
    "host": "the engine listens where the gateway reaches it",
    "served-model-name": "clients call `service`",
    "data-parallel-size": "the gateway shares requests out over replicas",
    "pipeline-parallel-size": "a replica is split over nodes by tensor_parallel only",
}

FLAG, FLAG_VALUE = TypeAdapter[str](Flag), TypeAdapter[Any](FlagValue)
ENV_NAME, ENV_VALUE = TypeAdapter[str](EnvName), TypeAdapter[str](Value)


@dataclass(frozen=True)
class Left:
    """What was not carried over: the line in the file (1 is the first), the key, and why."""

    line: int
    key: str
    why: str


@dataclass
class Carried:
    """A recipe of ours in the making. `guessed`: a comment for each key that their recipe does not say."""

    source: Source
    text: str
    """The file, to find the line of a word in it."""
    data: dict[str, Any] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    guessed: dict[str, str] = field(default_factory=dict)

    @cached_property
    def written(self) -> list[str]:
        """The lines of the file."""
        return self.text.splitlines()

    def leave(self, where: Location, key: str, why: str, word: str = "") -> None:
        """Note what was not carried over. `word` is looked for from the line of `where` on."""
        first = self.source.lines.get(self.source.nearest(where), 1)
        found = (n for n in range(first, len(self.written) + 1) if word and word in self.written[n - 1])
        self.left.append(Left(next(found, first), key, why))


def carry(source: Source, text: str, name: str) -> Carried:
    """One recipe. Raises ConfigError for a file that is none of theirs, or is for another engine than vLLM."""
    theirs = source.data
    if not isinstance(theirs, dict):
        raise source.fail((), "expected a recipe: a mapping of keys to values")
    if str(theirs.get("recipe_version", "1")) not in ("1", "2"):
        raise source.fail(("recipe_version",), "expected 1 (spark-vllm-docker) or 2 (sparkrun)")
    runtime = theirs.get("runtime", "vllm")
    if runtime not in RUNTIMES:
        raise source.fail(("runtime",), f"expected one that is vLLM: {', '.join(RUNTIMES)}; got {runtime!r}")
    made = Carried(source, text)
    model, serve = _asked(made, theirs)
    _args(made, serve, RUNTIMES[runtime])
    _env(made, _mapping(theirs.get("env")))
    for key in theirs:
        if key not in THEIRS and key != "runtime":
            made.leave((key,), key, WHY.get(key, "it is no key of a recipe that we know"))
    _whole(made, theirs, name, model)
    return made


def _mapping(given: object) -> dict[str, Any]:
    return given if isinstance(given, dict) else {}


def _asked(made: Carried, theirs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The model, and each flag that vLLM would have got: from the command, or from `defaults` where there is none."""
    values = {**_mapping(theirs.get("defaults")), **({"model": theirs["model"]} if "model" in theirs else {})}
    command, model = theirs.get("command"), str(theirs.get("model", ""))
    if not isinstance(command, str):
        given = {DEFAULTS.get(key, foreign.normal(key)): value for key, value in values.items() if key != "model"}
        return model, given
    try:
        text, unknown = foreign.filled(command, values)
        before, argv, after = foreign.serve(foreign.words(text))
        flags = dict(foreign.flags(argv))
    except ValueError as error:
        raise made.source.fail(("command",), f"cannot be read: {error}") from None
    for slot in unknown:
        made.leave(("command",), f"{{{slot}}}", "`defaults` has no value for it", f"{{{slot}}}")
    if not argv:
        raise made.source.fail(("command",), "expected `vllm serve MODEL` in it")
    for some in filter(None, (before, after)):
        made.leave(("command",), redact.shell(some), SHELL, some[0])
    positional = flags.pop("", None)
    return model or str(positional or flags.pop("model", "")), flags


def _args(made: Carried, flags: dict[str, Any], executor: str) -> None:
    port = flags.pop("port", None)
    serve: dict[str, Any] = {"port": port} if isinstance(port, int) else {}
    ranks = flags.pop("tensor-parallel-size", 1)
    executor = flags.pop("distributed-executor-backend", executor)
    if ranks == 2:
        serve |= {"tensor_parallel": 2, "executor": executor if executor in ("ray", "mp") else "ray"}
    elif ranks != 1:
        why = "sparkops joins at most two nodes into one replica"
        made.leave(("command",), f"tensor-parallel-size {ranks}", why, "-tp" if "-tp " in made.text else "tensor")
    flags = {key: value for key, value in flags.items() if value != 1 or key != "pipeline-parallel-size"}
    args = {}
    for key, value in flags.items():
        if why := _why_not(key, value):
            made.leave(("command",), key, why, f"--{key}")
        elif key.startswith("no-") and value is True:
            args[key.removeprefix("no-")] = False
        else:
            args[key] = value
    made.data["serve"] = {**serve, "args": args}


def _why_not(flag: str, value: Any) -> str:
    """Why a flag is not carried over; empty where it is."""
    if flag in DROPPED:
        return DROPPED[flag]
    if opt_in.abbreviated(flag.partition(".")[0], ENGINES["vllm"].taken):
        return "sparkops sets it itself"
    if "{" in str(value) and isinstance(value, str):
        return f"its value is not known: {value}"
    if "/workspace" in str(value):
        return f"it names a file of their image: {value}"
    try:
        FLAG.validate_python(flag)
        FLAG_VALUE.validate_python(value)
    except ValidationError as error:
        return error.errors()[0]["msg"]
    return "; ".join(_opt_in(name, effect) for name, effect in opt_in.of_flag(flag, value))


def _opt_in(name: str, effect: str) -> str:
    return f"{effect}; to keep it, write it yourself, with `allow: [{name}]` in `serve`"


def _env(made: Carried, env: Mapping[str, Any]) -> None:
    kept = {}
    for key, given in env.items():
        text = str(given).lower() if isinstance(given, bool) else str(given)
        try:
            ENV_NAME.validate_python(key)
            ENV_VALUE.validate_python(text)
        except ValidationError as error:
            made.leave(("env", key), f"env.{key}", error.errors()[0]["msg"])
            continue
        if effect := opt_in.of_variable(key, text):
            made.leave(("env", key), f"env.{key}", _opt_in(key, effect))
        else:
            kept[key] = text
    if kept:
        made.data["serve"]["env"] = kept


def _whole(made: Carried, theirs: Mapping[str, Any], name: str, model: str) -> None:
    """What a recipe of ours must say besides, each guess with its reason."""
    if not model:
        raise made.source.fail((), "it names no model: neither `model` nor `vllm serve MODEL`")
    share = made.data["serve"]["args"].get("gpu-memory-utilization", default_share("vllm", VLLM))
    described = theirs.get("description") or _mapping(theirs.get("metadata")).get("description") or theirs.get("name")
    weights = {"id": model, "path": model.rstrip("/").rpartition("/")[2].partition(":")[0]}
    weights |= {"revision": str(theirs["model_revision"])} if theirs.get("model_revision") else {}
    claim = round(float(share) * SHOWN_GIB + HOST_GIB) if isinstance(share, int | float) else round(SHOWN_GIB)
    made.data = {
        "name": name,
        "service": as_name(weights["path"]),
        "description": " ".join(str(described or model).split()),
        "image": {**IMAGE, **(RAY if made.data["serve"].get("executor") == "ray" else {})},
        "model": weights,
        "serve": made.data["serve"],
        "memory": {
            "claim_gib": claim,
            "why": f"{share} of the {SHOWN_GIB} GiB that a Spark shows, and {HOST_GIB} of the host side; not measured",
        },
        "verified": f"Nothing; imported from {made.source.file.name}.",
    }
    made.guessed = {
        "service": "guessed from the model's name; it is what clients call",
        "image": "guessed: that of 122b-autoround. Theirs was "
        + " ".join(str(theirs.get("container", "not said")).split()),
        "memory": "guessed from gpu-memory-utilization",
    }
