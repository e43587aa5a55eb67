"""What may run code of a recipe's author: its flags and variables, images, packages, sources and mods. Pure.

A recipe names each in `serve.allow` that is not known to be harmless, or is refused.

`harmless.py` lists what is harmless to every engine; an engine's FlagFacts have its own, and the effect of some of the
others.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sparkops.config import harmless
from sparkops.config.fields import Location
from sparkops.config.image import CHAT_TEMPLATE, CHAT_TEMPLATES, Image
from sparkops.config.model import Model
from sparkops.config.serve import Serve
from sparkops.engines import ENGINES, EngineName
from sparkops.engines.flags import IMPORTS, REMOTE, FlagFacts

REMOTE_CODE = "trust-remote-code"
COMMIT = re.compile(r"[0-9a-f]{40}")
UNKNOWN = "is not known to be harmless"
NOT_JSON = "begins like JSON, but sparkops cannot read it"
ONLINE = "lets the engine download, including code"
OFF = frozenset({"", "0", "false", "no", "off"})
HARMLESS = frozenset[str]().union(*(engine.flags.harmless for engine in ENGINES.values()))
"""The flags that are harmless to any engine."""
OFFLINE = frozenset({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"})
VARIABLES: Mapping[str, str] = {
    r"LD_\w+|GCONV_PATH|OPENSSL_\w+|OMP_TOOL_LIBRARIES": "loads shared libraries into every program",
    r"PYTHON(PATH|HOME|STARTUP|USERBASE|BREAKPOINT|INSPECT|EXECUTABLE|PLATLIBDIR|PYCACHEPREFIX|WARNINGS)": (
        "changes which Python code runs"
    ),
    r"PATH|BASH_ENV|ENV|CC|CXX|CUDAHOSTCXX|CUDA_(HOME|PATH)|PYTORCH_NVCC|NVCC_\w+_FLAGS|GIT_\w+|TRITON_PTXAS\w*_PATH": (
        "changes which programs run"
    ),
    r"HF_ENDPOINT": "changes where models come from",
    r"\w*TRUST_REMOTE_CODE": REMOTE,
    r"(CUDA|NVTX)_INJECTION64_PATH|NCCL_(\w+_PLUGIN|NET|CONF_FILE)|TRITON_PLUGIN\w+|RAY_\w+_HOOK": (
        "loads code named in its value"
    ),
}
"""Of glibc, CPython, huggingface_hub, CUDA, NCCL and Ray; those of an engine itself are in its FlagFacts."""


RUNS = "that sparkops does not know: its code runs in the build and the engine"
PUBLISHER = f"is an image {RUNS}"
MOVES = f"{PUBLISHER}, and its tag can move (`sparkops recipe lock` pins it)"
SOURCE = "is compiled and run, at a commit that may be of a fork"
PACKAGE = f"is a package {RUNS}"
MOD = "is a mod of ./mods: it changes the code of the image"


class Need(NamedTuple):
    """One flag, variable or part of the image that needs `allow`: its place, its name there, and its effect."""

    where: Location
    name: str
    effect: str


def needs(serve: Serve, engine: EngineName) -> Iterator[Need]:
    """Yield each flag, key and variable of a recipe's `serve` that is not known to be harmless for its engine."""
    for flag, value in serve.args.items():
        yield from (Need(("serve", "args", flag), name, effect) for name, effect in of_flag(flag, value, engine))
    for name, value in serve.env.items():
        if effect := of_variable(name, value, engine):
            yield Need(("serve", "env", name), name, effect)


def of_image(image: Image, engine: EngineName) -> Iterator[Need]:
    """Yield each part of an image with code that may be of the recipe's author: image, source, packages, and mods.

    Of the mods the caller knows which are the operator's own.
    """
    published = frozenset[str]().union(*(kind.published for kind in ENGINES.values()))
    repository = _repository(image.parent)
    if repository not in harmless.IMAGES | published and not repository.startswith(harmless.REGISTRIES):
        yield Need(("image", "use" if image.use else "base"), repository, PUBLISHER if "@" in image.parent else MOVES)
    if image.source:
        yield Need(("image", "source"), image.source.url, SOURCE)
    for key in ("packages", "override", *(() if image.use else ENGINES[engine].pins)):
        stated = getattr(image, key)
        for requirement in [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else ():
            name = re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")
            if name not in harmless.PACKAGES | published:
                yield Need(("image", key), name, PACKAGE)
    for number, mod in enumerate(image.mods):
        if not mod.endswith(CHAT_TEMPLATE):
            yield Need(("image", "mods", number), mod, MOD)


def _repository(image: str) -> str:
    """Return the repository of an image, without tag, digest and the registry that Docker adds."""
    place, _, name = image.partition("@")[0].rpartition("/")
    repository = f"{place}/{name.partition(':')[0]}".lstrip("/")
    return repository.removeprefix("docker.io/").removeprefix("library/")


def of_flag(flag: str, value: Any, engine: EngineName) -> Iterator[tuple[str, str]]:
    """Yield name and effect of a flag, and of each key inside its value, that needs `allow`."""
    facts, (first, _, rest) = ENGINES[engine].flags, flag.partition(".")
    if value is False or (value is True and first.startswith("no-") and not rest):  # both make --no-FLAG
        known = first.removeprefix("no-")
        if known not in facts.harmless and not abbreviated(known, facts.effects):
            yield first, UNKNOWN
        return
    if (
        first == ENGINES[engine].template_flag
        and isinstance(value, str)
        and (value.lstrip().startswith("{") or image_template(value))
    ):
        return  # the template itself, or one of the image
    if name := abbreviated(first, facts.effects):
        yield name, facts.effects[name]
        return
    if first not in facts.harmless:
        yield first, UNKNOWN
        return
    for key in reversed(rest.split(".") if rest else ()):
        value = {key: value}
    yield from dict(_inside(facts, (first,), value)).items()


def image_template(value: object) -> str:
    """Return the mod with the chat template of an image that a value names; empty for any other value."""
    match = re.fullmatch(rf"{CHAT_TEMPLATES}/([a-z0-9][a-z0-9.-]*{re.escape(CHAT_TEMPLATE)})", str(value))
    return match[1] if match else ""


def abbreviated(flag: str, names: Mapping[str, str] | frozenset[str]) -> str:
    """Return which of `names` an engine may read `flag` as, empty for none: argparse accepts prefixes."""
    if flag in names:
        return flag
    if flag in HARMLESS or len(flag) == 1:  # an exact name is no abbreviation, and one letter is ambiguous
        return ""
    return next((name for name in names if name.startswith(flag)), "")


def _inside(facts: FlagFacts, path: tuple[str, ...], value: Any) -> Iterator[tuple[str, str]]:
    """Yield name and effect of each key inside a value that needs `allow`; text may be JSON, at any depth."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            value = json.loads(value, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            yield ".".join(path), NOT_JSON
            return
    if isinstance(value, dict | _Pairs):
        for key, child in value.items():
            yield from _key(facts, (*path, str(key)), child)
    elif isinstance(value, list):
        for child in value:
            yield from _inside(facts, path, child)
    elif facts.imports(".".join(path), str(value)):
        yield ".".join(path), IMPORTS


class _Pairs:
    """A mapping of JSON text with all its keys: parsers differ in which of two equal keys counts."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self._pairs = pairs

    def items(self) -> list[tuple[str, Any]]:
        return self._pairs


def _key(facts: FlagFacts, path: tuple[str, ...], value: Any) -> Iterator[tuple[str, str]]:
    flag, key, *deeper = path
    spelled = path[-1].replace("-", "_")
    if value is False:
        return
    if effect := next((effect for keys, effect in facts.key_effects.items() if re.fullmatch(keys, spelled)), ""):
        yield ".".join(path), effect
    elif not deeper and key not in facts.keys.get(flag, {key}):
        yield ".".join(path), UNKNOWN
    else:
        yield from _inside(facts, path, value)


def of_variable(name: str, value: str, engine: EngineName) -> str:
    """Return the effect of a variable that needs `allow`; empty for one that is known to be harmless."""
    if name in OFFLINE:
        return ONLINE if value.strip().lower() in OFF else ""
    facts = ENGINES[engine].flags
    own = facts.variable_prefix and name.startswith(facts.variable_prefix)
    if own or name in harmless.VARIABLES or name in facts.variables:
        return ""
    effects = {**facts.variable_effects, **VARIABLES}
    return next((effect for names, effect in effects.items() if re.fullmatch(names, name)), UNKNOWN)


def line(names: Iterable[str]) -> str:
    """Return the line of a recipe that opts in."""
    return f"allow: [{', '.join(dict.fromkeys(names))}]"


def refusals(serve: Serve, engine: EngineName, code: Iterable[Need] = ()) -> Iterator[tuple[Location, str]]:
    """Yield where a recipe needs an opt-in that `allow` lacks, and the problem with the line to write.

    `code`: what else needs one, in its image.
    """
    missing = [need for need in (*needs(serve, engine), *code) if need.name not in serve.allow]
    expected = line((*serve.allow, *(need.name for need in missing)))
    yield from (
        (need.where, f"{need.name} {need.effect}{_hint(need, engine)}; not in serve.allow, expected `{expected}`")
        for need in missing
    )


def _hint(need: Need, engine: EngineName) -> str:
    """Return the known flag that an unknown one resembles, as a question; empty without one."""
    if need.effect != UNKNOWN or need.where[:2] != ("serve", "args"):
        return ""
    near = difflib.get_close_matches(need.name, ENGINES[engine].flags.harmless, n=1, cutoff=0.8)
    return f" (did you mean {near[0]}?)" if near else ""


def notes(serve: Serve, engine: EngineName, image: Image) -> Iterator[str]:
    """Yield a line of a plan for each flag, variable and part of the image that is allowed by name."""
    code = (need for need in of_image(image, engine) if need.name in serve.allow)
    yield from (f"allowed: {need.name} ({need.effect})" for need in (*needs(serve, engine), *code))


def unpinned(serve: Serve, model: Model, engine: EngineName) -> Iterator[tuple[Location, str]]:
    """Yield where a model that may run its own code has no commit, and the problem."""
    if not any(need.effect == REMOTE for need in needs(serve, engine)):
        return
    for place, weights in model.places:
        where: Location = (*place, "revision")
        if not COMMIT.fullmatch(weights.revision or ""):
            got = repr(weights.revision) if weights.revision else "none"
            yield where, f"{REMOTE_CODE} {REMOTE}, expected a commit of 40 hex digits, got {got}"
