"""Flags and variables that run code or open files: a recipe names each in `serve.allow`, or is refused. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sparkops.config.model import Model
from sparkops.config.serve import Serve
from sparkops.config.source import Location

REMOTE_CODE = "trust-remote-code"
COMMIT = re.compile(r"[0-9a-f]{40}")
IMPORTS = "imports Python code named in its value"
READS_FLAGS = "reads further flags from a file"
FLAGS: Mapping[str, str] = {
    REMOTE_CODE: "runs Python code of the model repository",
    "config": READS_FLAGS,
    "log-config-file": "creates Python objects named in a file",
    "allowed-local-media-path": "lets clients read files of the container",
    "tool-server": "may run code written by the model",
    "trust-request-chat-template": "runs chat templates of clients",
    "trust-request-mm-kwargs": "passes arguments of clients to the model's processor",
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
FULL_NAMES = frozenset({"reasoning-parser"})
"""Flags of vLLM that are the beginning of one of FLAGS, and not its abbreviation."""
SECRETS = frozenset({"api-key", "hf-token"})
"""Flags of vLLM whose value is a secret."""
KEY = re.compile(r"(module_path|_cls|_plugin|inductor_passes|custom_class)$")
"""Keys inside JSON values that name Python code (vllm/config/ of 0.32.0)."""
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
BY_NAME = frozenset({"compilation-config.backend", "speculative-config.model", "spec-model"})
"""Values that are import paths if they have dots and no slash (ibid., compilation.py and speculative.py)."""
ONLINE = "lets the engine download, including code"
OFF = frozenset({"", "0", "false", "no", "off"})
OFFLINE = frozenset({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"})
VARIABLES: Mapping[str, str] = {
    r"LD_\w+|GCONV_PATH": "loads shared libraries into every program",
    r"PYTHON(PATH|HOME|STARTUP|USERBASE|BREAKPOINT|INSPECT|EXECUTABLE|PLATLIBDIR|PYCACHEPREFIX|WARNINGS)": (
        "changes which Python code runs"
    ),
    r"PATH|BASH_ENV|ENV|CC|CXX|CUDAHOSTCXX|TRITON_PTXAS_PATH": "changes which programs run",
    r"VLLM_ALLOW_INSECURE_SERIALIZATION": "unpickles what the engine receives",
    r"VLLM_(PLUGINS|LOGGING_CONFIG_PATH|CONFIG_ROOT|MODEL_REDIRECT_PATH|RUST_FRONTEND_PATH|\w+_SO_PATH)": (
        "loads code or settings named in its value"
    ),
    r"VLLM_ALLOW_RUNTIME_LORA_UPDATING|VLLM_SERVER_DEV_MODE": "opens endpoints that change the engine",
    r"VLLM_PORT": "moves ports of ranks out of the range that the guard closes",
    r"VLLM_USE_MODELSCOPE|HF_ENDPOINT": "changes where models come from",
    r"\w*TRUST_REMOTE_CODE": FLAGS[REMOTE_CODE],
    r"(CUDA|NVTX)_INJECTION64_PATH|NCCL_(NET|TUNER|PROFILER|ENV)_PLUGIN|RAY_\w+_HOOK": "loads code named in its value",
}
"""Of glibc, CPython, vllm/envs.py of 0.32.0, huggingface_hub, CUDA, NCCL and Ray."""


class Need(NamedTuple):
    """One flag or variable that needs `allow`: its place, its name there, and its effect."""

    where: Location
    name: str
    effect: str


def needs(serve: Serve) -> Iterator[Need]:
    """Yield each flag, key and variable of a recipe's `serve` that runs code or opens files."""
    for flag, value in serve.args.items():
        yield from (Need(("serve", "args", flag), name, effect) for name, effect in of_flag(flag, value))
    for name, value in serve.env.items():
        if effect := of_variable(name, value):
            yield Need(("serve", "env", name), name, effect)


def of_flag(flag: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield name and effect of a flag, and of each key inside its value, that needs `allow`."""
    if value is False:
        return
    first, _, rest = flag.partition(".")
    if name := abbreviated(first, FLAGS):
        yield name, FLAGS[name]
        return
    for key in reversed(rest.split(".") if rest else ()):
        value = {key: value}
    yield from _inside(first, value)


def abbreviated(flag: str, names: Mapping[str, str] | frozenset[str]) -> str:
    """Return which of `names` an engine may read `flag` as, empty for none: argparse accepts prefixes."""
    if flag in names:
        return flag
    if flag in FULL_NAMES or len(flag) == 1:  # one letter is ambiguous
        return ""
    return next((name for name in names if name.startswith(flag)), "")


def _inside(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _inside(f"{name}.{key}", child)
        return
    if isinstance(value, list):
        for child in value:
            yield from _inside(name, child)
        return
    by_name = name in BY_NAME and isinstance(value, str) and DOTTED.fullmatch(value)
    if by_name or any(KEY.search(key) for key in name.split(".")[1:]):
        yield name, IMPORTS


def of_variable(name: str, value: str) -> str:
    """Return the effect of a variable that needs `allow`; empty for any other."""
    if name in OFFLINE:
        return ONLINE if value.strip().lower() in OFF else ""
    return next((effect for names, effect in VARIABLES.items() if re.fullmatch(names, name)), "")


def refusals(serve: Serve) -> Iterator[tuple[Location, str]]:
    """Yield where a recipe needs an opt-in that `allow` lacks, and the problem."""
    for need in needs(serve):
        if need.name not in serve.allow:
            yield need.where, f"{need.effect}; not in serve.allow, expected `allow: [{need.name}]`"


def notes(serve: Serve) -> Iterator[str]:
    """Yield a line of a plan for each flag and variable that runs code or opens files."""
    yield from (f"allowed: {need.name} ({need.effect})" for need in needs(serve))


def unpinned(serve: Serve, model: Model) -> Iterator[tuple[Location, str]]:
    """Yield where a model that may run its own code has no commit, and the problem."""
    if not any(need.name == REMOTE_CODE for need in needs(serve)):
        return
    for number, weights in enumerate(model.fetched):
        where: Location = ("model", "sources", number, "revision") if model.sources else ("model", "revision")
        if not COMMIT.fullmatch(weights.revision or ""):
            got = repr(weights.revision) if weights.revision else "none"
            yield where, f"{REMOTE_CODE} {FLAGS[REMOTE_CODE]}, expected a commit of 40 hex digits, got {got}"
