"""Convert recipes of spark-vllm-docker (version 1), sparkrun (version 2) and vllm-project to recipes of sparkops.

Their engine is vLLM, or SGLang in a finished image.

Sources of the formats: recipes/README.md of eugr/spark-vllm-docker and RECIPES.md of spark-arena/sparkrun; the third is
that of vllm_project.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from posixpath import basename
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sparkops import redact
from sparkops.command import quote
from sparkops.config import opt_in, source
from sparkops.config.fields import Location, ModelName, as_name
from sparkops.config.image import Image
from sparkops.config.serve import Task
from sparkops.config.source import Source
from sparkops.engines import ENGINES, EngineName
from sparkops.errors import ConfigError
from sparkops.foreign import one_line
from sparkops.operator.convert import (
    command_lines,
    mods,
    releases,
    server_flags,
    sglang_flags,
    starts,
    variants,
    vllm_project,
)
from sparkops.operator.convert.conversion import DEFAULTS, IMPORTED, Choices, Conversion, Kept, Omission, directory
from sparkops.operator.convert.flag_types import BOOLEANS, LISTS
from sparkops.operator.convert.recipe_keys import (
    BACKEND,
    NODE_KEYS,
    READ_KEYS,
    SHELL,
    SPLIT,
    add_rope_keys,
    convert_nodes,
    flags_of_mods,
    omit_keys,
    pulled,
)
from sparkops.operator.convert.server_flags import REPOSITORY, SHOWN_GIB, convert_variables

HOST_GIB = 5.6
"""Memory in GiB of the host side, as in the shipped recipes."""
GRAPHS_GIB: Mapping[EngineName, float] = {"vllm": 0, "sglang": 7.9}
"""Memory in GiB of graphs and activations beside an engine's share, as in the shipped recipes."""
RAY = "ray[default]==2.60.0"
RUNTIMES: Mapping[str, tuple[EngineName, str]] = {
    "vllm": ("vllm", "mp"),
    "vllm-distributed": ("vllm", "mp"),
    "eugr-vllm": ("vllm", "mp"),
    "vllm-ray": ("vllm", "ray"),
    "sglang": ("sglang", "mp"),
}
"""The engine of each runtime, and its launcher for several nodes."""
NO_RAY = "spark-vllm-docker removes it too (launch-cluster.sh at 013cd2e, without --ray); for Ray set serve.executor"
STARTS: Mapping[EngineName, str] = {"vllm": "vllm serve MODEL", "sglang": "sglang serve --model-path MODEL"}
FLAGS = {"vllm": server_flags.convert_flags, "sglang": sglang_flags.convert_flags}
STRICT = READ_KEYS - {"name", "description"} | {"defaults", "env", "mods", "pre_exec", "draft_model", *NODE_KEYS}
"""Keys that affect the engine. Ambiguous values of other keys are accepted."""
NEWER = "unknown version, read as version 2 as in sparkrun"
NO_REPOSITORY = "is not a repository: expected OWNER/NAME"
TASKS: Mapping[str, Task] = {
    **{"generate": "chat", "auto": "chat"},
    **{"embed": "embedding", "embedding": "embedding", "score": "rerank"},
}
"""Values of --task (vllm/config/__init__.py of 0.9.2), which later releases conclude from the model."""
NAMED_TASKS: Mapping[str, Task] = {"embedding": "embedding", "rerank": "rerank"}
"""Words in names of models that do not chat."""
SHELL_VALUE = "is a variable of the original's shell, which may be another directory than the model's"
TWO_SERVERS = "a second server in one command: sparkops starts one engine for each recipe"
KINDS: Mapping[str, tuple[type, str]] = {
    "defaults": (dict, "a mapping of names to values"),
    "env": (dict, "a mapping of names to values"),
    "mods": (list, "a list of directories"),
    "command": (str, "the text of a command"),
    "model": (str, "the name of a repository"),
}
"""Keys that affect the engine, with the type of their value."""
MODEL_NAME = TypeAdapter[str](ModelName)
SOLO = "spark-vllm-docker runs a recipe with `solo_only` on one node"


def read(file: Path, given: bytes | None = None) -> Source:
    """Read a recipe of another tool, or a start without one, whose text is then the data.

    `given` is its content where the caller has read it. Raises ConfigError for an ambiguous key that affects the
    engine, a link, and a file of another kind.
    """
    read = content(file) if given is None else given
    text = read.decode(errors="replace")
    start = Source(file, text, {(): 1})
    if text.startswith("#!"):
        return start
    try:
        original = source.read(file, strict=STRICT, content=read)
    except ConfigError as error:
        if starts.is_start(text):
            return start
        if what := starts.named(text):
            raise starts.unread(start, f"{what}, which import does not read") from None
        raise error
    return start if isinstance(original.data, str) and starts.is_start(text) else original


def content(file: Path) -> bytes:
    """Return the content of a recipe, which is read like all that lies beside it. Raises ConfigError."""
    read = mods.tree(file)[0].read(file.name, source.MAX_BYTES)
    if read is None:
        raise ConfigError(file, 1, "", "cannot be read: expected a file")
    return read


def convert(source: Source, text: str, name: str, choices: Choices = IMPORTED) -> Conversion:
    """Return a recipe of sparkops with its omissions; `refusals` are the reasons why it cannot start.

    Mods and chat templates are read beside the recipe, or in `choices.mods`. Raises ConfigError for a file that is not
    a recipe of these tools, whose engine is neither vLLM nor SGLang, or that has no image for SGLang.
    """
    omissions: list[Omission] = []
    if isinstance(source.data, str) and (starts.is_start(source.data) or source.data.startswith("#!")):
        source, omissions = starts.of_script(source, source.data)
    elif isinstance(source.data, dict) and "services" in source.data and not {"model", "command"} & {*source.data}:
        source, omissions = starts.of_compose(source, choices.variant)
        choices = replace(choices, variant="")
    original = source.data
    if not isinstance(original, dict):
        what = starts.named(text)
        problem = f"{what}, which import does not read" if what else "expected a recipe: a mapping of keys to values"
        raise starts.unread(source, problem)
    if "recipe_version" not in original and (isinstance(original.get("image"), dict) or "extends" in original):
        own = source.fail((), "a recipe of sparkops already: nothing to convert")
        own.next_step = f"sparkops recipe show {source.file}"
        raise own
    if vllm_project.is_recipe(original):
        translated = vllm_project.translate(source, choices.variant)
        source, omissions = translated.source, translated.omissions
        choices = replace(choices, own=translated.image)
    else:
        _check_kinds(source, original)
        source = variants.chosen(source, choices.variant)
    original = _mapping(source.data)
    version = str(original.get("recipe_version", "2"))
    if not version.isdecimal():
        got = original["recipe_version"]
        raise source.fail(("recipe_version",), f"expected 1 (spark-vllm-docker) or 2 (sparkrun), got {got!r}")
    runtime = original.get("runtime", "vllm")
    if not isinstance(runtime, str) or runtime not in RUNTIMES:
        problem = f"expected a runtime of vLLM or SGLang: {', '.join(RUNTIMES)}; got {runtime!r}"
        raise source.fail(("runtime",), problem)
    _check_kinds(source, original)
    source, omissions = _unpacked(source, original, omissions)
    original = _mapping(source.data)
    runtime = original.get("runtime", "vllm")
    if version == "1" and not str(original.get("command") or "").strip():
        raise source.fail(("command",), "missing, but required in version 1")
    engine, _ = RUNTIMES[runtime]
    if engine != "vllm" and not (choices.use or choices.own):
        choices = replace(choices, own=_finished(source, original))
    named = [str(mod) for mod in original.get("mods") or ()]
    found = [directory for mod in named if (directory := mods.find(source.file, mod, choices.mods))]
    beside = {mod.name: mod for mod in map(mods.read, found)}
    conversions = [
        _convert(
            Conversion(source, original, text, choices, engine, release, omissions=[*omissions], beside=beside),
            name,
            escapes=version == "1",
        )
        for release in (releases.RELEASES[-1:] if choices.use or choices.own else releases.RELEASES)
    ]
    fitting = [one for one in conversions if one.model_type is None or releases.loads(one.release, one.model_type)]
    theirs = releases.stated(original.get("container"))
    return min(
        fitting or conversions[-1:],
        key=lambda one: (len(one.refusals), *releases.preference(one.release, one.model_type, theirs)),
    )


def _unpacked(source: Source, original: Mapping[str, Any], omissions: list[Omission]) -> tuple[Source, list[Omission]]:
    """Return a recipe whose command is a `docker run` with what the container runs, its image and its variables."""
    command = original.get("command")
    if not isinstance(command, str) or starts.DOCKERS.search(command) is None:
        return source, omissions
    try:
        start = starts.script(command)
    except ValueError as error:
        raise source.fail(("command",), f"{error}") from None
    env = {**start.env, **_mapping(original.get("env"))}
    inner = {"container": start.image} if start.image else {}
    inner |= {"runtime": start.engine} if start.engine != "vllm" else {}
    line = source.lines.get(("command",), 1)
    data = {**original, **inner, "command": quote(*start.argv), "env": env}
    left = [Omission(line, key, reason, "loss" if loss else "note") for key, reason, loss in start.left]
    lines: dict[Location, int] = {("container",): line} | {("env", name): line for name in start.env} | source.lines
    return replace(source, data=data, lines=lines), [*omissions, *left]


def _finished(source: Source, original: Mapping[str, Any]) -> str:
    """Return the recipe's own image, for an engine that sparkops builds none of. Raises ConfigError without one."""
    container = original.get("container")
    if image := pulled(container):
        return image
    got = f"; got {container!r}" if container else ""
    problem = f"expected an image with SGLang that a node can pull, as sparkops builds none{got}"
    error = source.fail(("container",) if container else ("runtime",), problem)
    error.next_step = f"sparkops import {source.file} --use IMAGE"
    raise error


def _check_kinds(source: Source, original: Mapping[str, Any]) -> None:
    """Raise ConfigError for a key that affects the engine with a value of another type."""
    for key, (kind, words) in KINDS.items():
        if original.get(key) not in (None, "", [], {}) and not isinstance(original[key], kind):
            raise source.fail((key,), f"expected {words}, got {original[key]!r}")


def _convert(conversion: Conversion, name: str, *, escapes: bool) -> Conversion:
    """Fill a conversion for its engine, and for its release of vLLM, and return it."""
    original = conversion.original
    conversion.mods = flags_of_mods(original.get("mods"))
    version = str(original.get("recipe_version", "2"))
    if version not in ("1", "2"):
        conversion.omit(conversion.line(("recipe_version",)), f"recipe_version {version}", NEWER, "loss")
    variables = _mapping(original.get("env"))
    model, flags, unknown = _server(conversion, variables, escapes=escapes)
    conversion.model_type = releases.model_type(model) if conversion.engine == "vllm" else None
    if not conversion.use and conversion.model_type and not releases.loads(conversion.release, conversion.model_type):
        known = conversion.model_type
        newest = f"vLLM {conversion.release.version}, the newest that import knows"
        why = f"{newest}, does not load {known.type} ({known.source})"
        conversion.omit(conversion.line(("model",)), "model", why, "refusal", "model", unknown=True)
    task = _task(conversion, flags, model)
    service = as_name(directory(model))
    if not conversion.kind.aliases:
        service = sglang_flags.service(conversion, flags, service)
    aliases = _aliases(conversion, flags, service)
    _, executor = RUNTIMES[original.get("runtime", "vllm")]
    if escapes and flags.pop(BACKEND, "mp") == "ray":
        conversion.omit(conversion.flag_line(BACKEND), f"{BACKEND} ray", NO_RAY)
    serve = convert_nodes(conversion, flags, executor)
    serve |= {"aliases": aliases} if aliases else {}
    serve |= {"task": task} if task != "chat" else {}
    serve["args"] = FLAGS[conversion.engine](conversion, flags, model, unknown)
    if env := convert_variables(conversion, variables):
        serve["env"] = env
    add_rope_keys(conversion, model)
    omit_keys(conversion)
    given = opt_in.of_image(Image(use=conversion.choices.use), conversion.engine) if conversion.choices.use else ()
    if allow := [*(kept.allow for kept in conversion.kept if kept.allow), *(need.name for need in given)]:
        serve["allow"] = [*dict.fromkeys(allow)]
    _fill(conversion, name, service, model, serve)
    return conversion


def _task(conversion: Conversion, flags: dict[str, Any], model: str) -> Task:
    """Return what a model does, by the flag `task` of older releases of vLLM, which is removed, or by its name."""
    tasks = ENGINES[conversion.engine].tasks
    if (stated := TASKS.get(str(flags.get("task")))) and stated in tasks:
        del flags["task"]
        return stated
    return next((task for word, task in NAMED_TASKS.items() if word in model.lower() and task in tasks), "chat")


def _aliases(conversion: Conversion, flags: dict[str, Any], service: str) -> list[str]:
    """Remove the names for clients from the flags, and return those that differ from the service."""
    names = flags.pop("served-model-name", [])
    line = conversion.flag_line("served-model-name")
    aliases: dict[str, None] = {}
    for name in map(str, names if isinstance(names, list) else [names]):
        try:
            MODEL_NAME.validate_python(name)
        except ValidationError as error:
            conversion.omit(line, f"served-model-name {name}", error.errors()[0]["msg"], "loss")
            continue
        if name != service:
            aliases[name] = None
    conversion.lines["serve", "aliases"] = line
    return [*aliases]


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _server(
    conversion: Conversion, variables: dict[str, Any], *, escapes: bool
) -> tuple[str, dict[str, Any], frozenset[str]]:
    """Return the model, the flags of the engine, and the slots of the command without a value.

    Adds the environment that the command sets to `variables`, and fills in the shell's variables.
    Without a command the flags are those of `defaults`.
    """
    values = _values(conversion, escapes=escapes)
    command, model = conversion.original.get("command"), str(conversion.original.get("model") or "")
    if not isinstance(command, str):
        names = {key: flag for flag, key in DEFAULTS.items()}
        flags = {
            names.get(key, command_lines.normal(key)): value
            for key, value in values.items()
            if key != "model" and value is not None
        }
        return model, _renamed(conversion, [(flag, _read(flag, value)) for flag, value in flags.items()]), frozenset()
    try:
        text, unknown = _filled(command, values, escapes=escapes)
        before, argv, after = command_lines.serve(command_lines.words(text), conversion.engine)
        env, shell, before = command_lines.variables(before)
        known = {**{key: str(value) for key, value in variables.items()}, **env, **shell}
        written = command_lines.flags(command_lines.all_expanded(argv, known))
        flags = _renamed(conversion, [*({} if escapes else _appended(conversion, values)).items(), *written])
    except ValueError as error:
        raise conversion.source.fail(("command",), f"invalid command: {error}") from None
    if not argv:
        raise conversion.source.fail(("command",), f"expected `{STARTS[conversion.engine]}`")
    variables |= env
    if word := next((word for word in argv if command_lines.TYPOGRAPHIC.search(word[:1] + word[-1:])), ""):
        line = conversion.line(("command",), word)
        problem = f"{word} has typographic quotes, expected ' or \""
        conversion.omit(line, "command", problem, "refusal")
    if second := command_lines.serve(after, conversion.engine)[1]:
        conversion.refuse(conversion.line(("command",), second[0]), "command", TWO_SERVERS)
        after = []
    for slot in unknown:
        conversion.omit(conversion.line(("command",), f"{{{slot}}}"), f"{{{slot}}}", "no value in `defaults`")
    programs = {basename(command[0]) for _, command in starts.commands(before)}
    if "ray" in programs and programs <= starts.QUIET:
        line = conversion.line(("command",), "ray ")
        conversion.omit(line, "ray start", server_flags.DROPPED["nnodes"])
        before = []
    for words in filter(None, (before, after)):
        conversion.omit(conversion.line(("command",), words[0]), redact.shell(words), SHELL, "loss")
    return _model(conversion, flags), flags, frozenset(unknown)


def _renamed(conversion: Conversion, flags: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the flags by the names that the engine's parser reads; of a flag that is given twice, the last counts."""
    renamed = sglang_flags.renamed if conversion.engine == "sglang" else server_flags.renamed
    return renamed(conversion, flags)


def _values(conversion: Conversion, *, escapes: bool) -> dict[str, Any]:
    """Return the values of slots. In version 1, `solo_only` overrides the number of ranks in `defaults`."""
    original = conversion.original
    values = {**_mapping(original.get("defaults")), **({"model": original["model"]} if "model" in original else {})}
    for key in SPLIT.values() if escapes and original.get("solo_only") is True else ():
        if (size := values.get(key, 1)) != 1:
            conversion.omit(conversion.line(("defaults", key)), f"{key} {size}", SOLO)
            values[key] = 1
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


def _appended(conversion: Conversion, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that sparkrun appends to a command without them (runtimes/base.py, vllm_distributed.py)."""
    flags = ("served-model-name", *(["data-parallel-size"] if conversion.engine == "vllm" else []))
    keys = {flag: DEFAULTS.get(flag, flag.replace("-", "_")) for flag in flags}
    return {flag: _read(flag, values[key]) for flag, key in keys.items() if values.get(key) is not None}


def _read(flag: str, value: Any) -> Any:
    """Return the value of a key in `defaults` as the engine reads it, as sparkrun writes it into a command line."""
    if not isinstance(value, str):
        return value
    if flag in BOOLEANS and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return command_lines.value_of(flag, value.split() if flag in LISTS else [value])


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
        conversion.omit(
            line, "command", f"expected one model after `{conversion.engine} serve`, got {words}", "refusal"
        )
        return named or str(served[0])
    if "$" in str(served):
        if named:
            conversion.omit(line, "model", f"{served} {SHELL_VALUE}", "refusal")
        else:
            conversion.refuse(line, "model", f"{served} {SHELL_VALUE}: expected OWNER/NAME in its place")
        return named or str(served)
    is_path = str(served).startswith(("/", ".", "~", "{"))
    if is_path and named:
        conversion.omit(line, str(served), f"path in the original's container; the model is {named}")
    elif is_path:
        reason = f"{served} is a path in the original's container: expected OWNER/NAME in its place, or the key `model`"
        conversion.refuse(line, "model", reason)
    elif named:
        conversion.omit(
            conversion.line(("model",)), "model", f"the command serves {served}, not {named}", "loss", "model"
        )
    return named if is_path and named else str(served)


def _fill(conversion: Conversion, name: str, service: str, model: str, serve: dict[str, Any]) -> None:
    """Add the other keys of a recipe, and a comment for each guessed key."""
    original, kind = conversion.original, conversion.kind
    if not model:
        problem = f"no model: expected the key `model`, or `{STARTS[conversion.engine]}`"
        raise starts.unread(conversion.source, starts.named(conversion.text) or problem)
    share = serve["args"].get(kind.share_flag, kind.share(conversion.release.image["vllm"]))
    beside, states_service = GRAPHS_GIB[conversion.engine], ("service",) in conversion.lines
    metadata = _mapping(original.get("metadata"))
    described = original.get("description") or metadata.get("description") or original.get("name")
    weights: dict[str, Any] = {"id": model, "path": directory(model)}
    revision = original.get("model_revision") or conversion.revision
    weights |= {"revision": str(revision)} if revision else {}
    weights |= {"draft": conversion.draft} if conversion.draft else {}
    claim = round(float(share) * SHOWN_GIB + beside + HOST_GIB) if isinstance(share, int | float) else round(SHOWN_GIB)
    graphs = f"plus {beside} GiB of graphs and activations beside it, " if beside else ""
    conversion.lines["model",] = conversion.line(("model",) if original.get("model") == model else ("command",))
    if not REPOSITORY.fullmatch(model.partition(":")[0].rstrip("/")):
        conversion.omit(conversion.lines["model",], "model", f"{model} {NO_REPOSITORY}", "loss", "model")
    conversion.data = {
        "name": name,
        "service": service,
        "description": one_line(" ".join(str(described or model).split())),
        **({"engine": conversion.engine} if conversion.engine != "vllm" else {}),
        "image": _image(conversion, serve),
        "model": weights,
        "serve": serve,
        "memory": {
            "claim_gib": claim,
            "basis": f"{share} of a Spark's {SHOWN_GIB} GiB, {graphs}plus {HOST_GIB} GiB host overhead; not measured",
        },
        "verified": _verified(conversion),
    }
    for key, value in conversion.data.items():
        conversion.lines.setdefault((key,), conversion.lines["model",])
        for inner in value if isinstance(value, dict) else ():
            conversion.lines.setdefault((key, inner), conversion.lines[key,])
    stated = kind.share_flag if kind.share_flag in serve["args"] else f"the default {kind.share_flag}, {share}"
    conversion.guessed = {
        **({} if states_service else {"service": "guessed from the model's name; clients use this name"}),
        **({} if conversion.use else {"image": _image_comment(conversion)}),
        "memory": f"guessed from {stated}{_too_much(claim, kind.share_flag)}",
    }


def _too_much(claim: float, flag: str) -> str:
    """Return what to do about a claim that no Spark can meet; empty for another one."""
    if claim <= SHOWN_GIB:
        return ""
    refused = f"; `sparkops plan` refuses {claim} GiB on a Spark, which has {SHOWN_GIB}"
    return f"{refused}: lower {flag} and claim_gib (0.01 is {SHOWN_GIB / 100:.1f} GiB), or claim what a start took"


def _image(conversion: Conversion, serve: Mapping[str, Any]) -> dict[str, Any]:
    """Return `image` of the new recipe. A finished image must have Ray itself where Ray joins the ranks."""
    mods = {"mods": conversion.image_mods} if conversion.image_mods else {}
    ray = [RAY] if serve.get("executor") == "ray" else []
    if conversion.use:
        line = conversion.flag_line("distributed-executor-backend")
        conversion.kept += [Kept(line, "executor ray", f"the image must have {package}") for package in ray]
        return {"use": conversion.use, **mods}
    image = {**conversion.release.image, **mods}
    packages = [*image.get("packages", []), *ray, *conversion.data.pop("packages", [])]
    return {**image, **({"packages": packages} if packages else {})}


def _image_comment(conversion: Conversion) -> str:
    """Return why the new recipe has its image."""
    known, release = conversion.model_type, conversion.release
    facts = (
        f"loads {known.type} since {known.vllm} ({known.source})" if known else "unknown which version loads the model"
    )
    theirs = one_line(str(conversion.original.get("container", "")))
    original = f"the original uses {theirs}" if theirs else "the original names no image"
    return f"guessed: vLLM {release.version} with Transformers {release.transformers}; {facts}; {original}"


def _verified(conversion: Conversion) -> str:
    """Return the text of `verified`: nothing was run, and the missing settings of the original."""
    missing = ", ".join(dict.fromkeys(loss.key for loss in conversion.losses))
    return f"Nothing; imported from {conversion.source.file.name}" + (f" without: {missing}." if missing else ".")
