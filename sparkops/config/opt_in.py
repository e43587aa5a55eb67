"""Flags and variables that are not known to be harmless: a recipe names each in `serve.allow`, or is refused. Pure.

`harmless.py` lists what is known. FLAGS and VARIABLES here only give the effect of some of the others.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sparkops.config import harmless
from sparkops.config.engine import EngineName
from sparkops.config.image import CHAT_TEMPLATE, CHAT_TEMPLATES
from sparkops.config.model import Model
from sparkops.config.serve import Serve
from sparkops.config.source import Location

REMOTE_CODE = "trust-remote-code"
COMMIT = re.compile(r"[0-9a-f]{40}")
IMPORTS = "imports Python code named in its value"
READS_FLAGS = "reads further flags from a file"
READS, WRITES = "reads a file or directory named in its value", "writes to the path in its value"
TEMPLATE = "chat-template"
UNKNOWN = "is not known to be harmless"
NOT_JSON = "begins like JSON, but sparkops cannot read it"
FLAGS: Mapping[str, str] = {
    REMOTE_CODE: "runs Python code of the model repository",
    "config": READS_FLAGS,
    "log-config-file": "creates Python objects named in a file",
    "allowed-local-media-path": "lets clients read files of the container",
    "tool-server": "may run code written by the model",
    "trust-request-chat-template": "runs chat templates of clients",
    "trust-request-mm-kwargs": "passes arguments of clients to the model's processor",
    "additional-config": "passes settings to plugins of the engine",
    "download-dir": WRITES,
    "profiler-config": "opens endpoints that write files",
    "weight-transfer-config": "opens endpoints that replace the weights",
    "otlp-traces-endpoint": "sends traces of requests to the address in its value",
    "uds": "moves the engine's listener out of the guard's rules",
    "grpc": "replaces the HTTP server that the gateway and its limits are for",
    **dict.fromkeys(("enable-prompt-embeds", "enable-mm-embeds"), "loads tensors of clients"),
    **dict.fromkeys(("kv-events-config", "ec-transfer-config"), "opens ports"),
    **dict.fromkeys(
        ("data-parallel-address", "data-parallel-rpc-port", "data-parallel-supervisor-port"), "opens ports"
    ),
    **dict.fromkeys(("lora-modules", "default-mm-loras", "hf-config-path", TEMPLATE), READS),
    **dict.fromkeys(("ssl-ca-certs", "ssl-certfile", "ssl-keyfile", "mm-encoder-fp8-scale-path"), READS),
    "mm-encoder-fp8-scale-save-path": WRITES,
    **dict.fromkeys(
        (
            "middleware",
            "worker-cls",
            "worker-extension-cls",
            "scheduler-cls",
            "logits-processors",
            "model-class-overrides",
            "tool-parser-plugin",
            "reasoning-parser-plugin",
            "io-processor-plugin",
        ),
        IMPORTS,
    ),
}
"""From vllm/engine/arg_utils.py and vllm/entrypoints/launchers/cli_args.py of 0.32.0, and log-config-file of 0.23.0."""
SECRETS = frozenset({"api-key", "hf-token"})
"""Flags of vLLM whose value is a secret."""
KEYS: Mapping[str, str] = {
    r".*(module_path|_cls|_plugin|inductor_passes|custom_class|auto_map)": IMPORTS,
    r".*trust_remote_code": FLAGS[REMOTE_CODE],
    r"kv_(ip|port)": "opens ports",
    r".*(_path|_dir|_file)": "reads or writes the path in its value",
}
"""Keys inside JSON values that name Python code, paths and ports (vllm/config/ of 0.32.0), at any depth."""
CUSTOM = frozenset({"custom_class"})
"""Methods of speculation that import the class in `model`."""
ONLINE = "lets the engine download, including code"
OFF = frozenset({"", "0", "false", "no", "off"})
OFFLINE = frozenset({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"})
VARIABLES: Mapping[str, str] = {
    r"LD_\w+|GCONV_PATH|OPENSSL_\w+|OMP_TOOL_LIBRARIES": "loads shared libraries into every program",
    r"PYTHON(PATH|HOME|STARTUP|USERBASE|BREAKPOINT|INSPECT|EXECUTABLE|PLATLIBDIR|PYCACHEPREFIX|WARNINGS)": (
        "changes which Python code runs"
    ),
    r"PATH|BASH_ENV|ENV|CC|CXX|CUDAHOSTCXX|CUDA_(HOME|PATH)|PYTORCH_NVCC|NVCC_\w+_FLAGS|GIT_\w+|TRITON_PTXAS\w*_PATH": (
        "changes which programs run"
    ),
    r"VLLM_ALLOW_INSECURE_SERIALIZATION": "unpickles what the engine receives",
    r"VLLM_(PLUGINS|LOGGING_CONFIG_PATH|CONFIG_ROOT|MODEL_REDIRECT_PATH|RUST_FRONTEND_PATH|\w+_SO_PATH)": (
        "loads code or settings named in its value"
    ),
    r"VLLM_ALLOW_RUNTIME_LORA_UPDATING|VLLM_SERVER_DEV_MODE": "opens endpoints that change the engine",
    r"VLLM_PORT": "moves ports of ranks out of the range that the guard closes",
    r"VLLM_USE_MODELSCOPE|HF_ENDPOINT": "changes where models come from",
    r"\w*TRUST_REMOTE_CODE": FLAGS[REMOTE_CODE],
    r"(CUDA|NVTX)_INJECTION64_PATH|NCCL_(\w+_PLUGIN|NET|CONF_FILE)|TRITON_PLUGIN\w+|RAY_\w+_HOOK": (
        "loads code named in its value"
    ),
}
"""Of glibc, CPython, vllm/envs.py of 0.32.0, huggingface_hub, CUDA, NCCL and Ray."""


class Need(NamedTuple):
    """One flag or variable that needs `allow`: its place, its name there, and its effect."""

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


def of_flag(flag: str, value: Any, engine: EngineName = "vllm") -> Iterator[tuple[str, str]]:
    """Yield name and effect of a flag, and of each key inside its value, that needs `allow`."""
    first, _, rest = flag.partition(".")
    if value is False or (value is True and first.startswith("no-") and not rest):  # both make --no-FLAG
        known = first.removeprefix("no-")
        if known not in harmless.FLAGS[engine] and not abbreviated(known, FLAGS):
            yield first, UNKNOWN
        return
    if first == TEMPLATE and isinstance(value, str) and (value.lstrip().startswith("{") or image_template(value)):
        return  # the template itself, or one of the image
    if name := abbreviated(first, FLAGS):
        yield name, FLAGS[name]
        return
    if first not in harmless.FLAGS[engine]:
        yield first, UNKNOWN
        return
    for key in reversed(rest.split(".") if rest else ()):
        value = {key: value}
    yield from dict(_inside((first,), value)).items()


def image_template(value: object) -> str:
    """Return the mod with the chat template of an image that a value names; empty for any other value."""
    match = re.fullmatch(rf"{CHAT_TEMPLATES}/([a-z0-9][a-z0-9.-]*{re.escape(CHAT_TEMPLATE)})", str(value))
    return match[1] if match else ""


def abbreviated(flag: str, names: Mapping[str, str] | frozenset[str]) -> str:
    """Return which of `names` an engine may read `flag` as, empty for none: argparse accepts prefixes."""
    if flag in names:
        return flag
    known = frozenset[str]().union(*harmless.FLAGS.values())
    if flag in known or len(flag) == 1:  # an exact name is no abbreviation, and one letter is ambiguous
        return ""
    return next((name for name in names if name.startswith(flag)), "")


def _inside(path: tuple[str, ...], value: Any) -> Iterator[tuple[str, str]]:
    """Yield name and effect of each key inside a value that needs `allow`; text may be JSON, at any depth."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            value = json.loads(value, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            yield ".".join(path), NOT_JSON
            return
    if isinstance(value, dict | _Pairs):
        for key, child in value.items():
            yield from _key((*path, str(key)), child)
    elif isinstance(value, list):
        for child in value:
            yield from _inside(path, child)
    elif effect := _import_path(path, value):
        yield ".".join(path), effect


class _Pairs:
    """A mapping of JSON text with all its keys: parsers differ in which of two equal keys counts."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self._pairs = pairs

    def items(self) -> list[tuple[str, Any]]:
        return self._pairs


def _key(path: tuple[str, ...], value: Any) -> Iterator[tuple[str, str]]:
    flag, key, *deeper = path
    spelled = path[-1].replace("-", "_")
    if value is False:
        return
    if effect := next((effect for keys, effect in KEYS.items() if re.fullmatch(keys, spelled)), ""):
        yield ".".join(path), effect
    elif not deeper and key not in harmless.KEYS.get(flag, {key}):
        yield ".".join(path), UNKNOWN
    else:
        yield from _inside(path, value)


def _import_path(path: tuple[str, ...], value: Any) -> str:
    """Return the effect of a text that vLLM may import (config/compilation.py and speculative.py of 0.32.0)."""
    name, text = ".".join(path), str(value)
    imports = (
        (name == "compilation-config.backend" and text not in harmless.BACKENDS)
        or (name in ("speculative-config.method", "spec-method") and text in CUSTOM)
        or (name in ("speculative-config.model", "spec-model") and "." in text and "/" not in text)
    )
    return IMPORTS if imports else ""


def of_variable(name: str, value: str, engine: EngineName = "vllm") -> str:
    """Return the effect of a variable that needs `allow`; empty for one that is known to be harmless."""
    if name in OFFLINE:
        return ONLINE if value.strip().lower() in OFF else ""
    if name in harmless.VARIABLES or (engine == "stand-in" and name.startswith(harmless.STAND_IN)):
        return ""
    return next((effect for names, effect in VARIABLES.items() if re.fullmatch(names, name)), UNKNOWN)


def line(names: Iterable[str]) -> str:
    """Return the line of a recipe that opts in."""
    return f"allow: [{', '.join(dict.fromkeys(names))}]"


def refusals(serve: Serve, engine: EngineName) -> Iterator[tuple[Location, str]]:
    """Yield where a recipe needs an opt-in that `allow` lacks, and the problem with the line to write."""
    missing = [need for need in needs(serve, engine) if need.name not in serve.allow]
    expected = line((*serve.allow, *(need.name for need in missing)))
    yield from (
        (need.where, f"{need.name} {need.effect}{_hint(need, engine)}; not in serve.allow, expected `{expected}`")
        for need in missing
    )


def _hint(need: Need, engine: EngineName) -> str:
    """Return the known flag that an unknown one resembles, as a question; empty without one."""
    if need.effect != UNKNOWN or need.where[:2] != ("serve", "args"):
        return ""
    near = difflib.get_close_matches(need.name, harmless.FLAGS[engine], n=1, cutoff=0.8)
    return f" (did you mean {near[0]}?)" if near else ""


def notes(serve: Serve, engine: EngineName) -> Iterator[str]:
    """Yield a line of a plan for each flag and variable that is not known to be harmless."""
    yield from (f"allowed: {need.name} ({need.effect})" for need in needs(serve, engine))


def unpinned(serve: Serve, model: Model, engine: EngineName) -> Iterator[tuple[Location, str]]:
    """Yield where a model that may run its own code has no commit, and the problem."""
    if not any(need.effect == FLAGS[REMOTE_CODE] for need in needs(serve, engine)):
        return
    for place, weights in model.places:
        where: Location = (*place, "revision")
        if not COMMIT.fullmatch(weights.revision or ""):
            got = repr(weights.revision) if weights.revision else "none"
            yield where, f"{REMOTE_CODE} {FLAGS[REMOTE_CODE]}, expected a commit of 40 hex digits, got {got}"
