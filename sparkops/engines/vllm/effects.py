"""Flags, keys and variables of vLLM that run code, read or write files, open ports or hold secrets."""

from __future__ import annotations

from collections.abc import Mapping

from sparkops.engines.flags import IMPORTS, READS, READS_FLAGS, REMOTE, WRITES, FlagFacts
from sparkops.engines.vllm import harmless

EFFECTS: Mapping[str, str] = {
    "trust-remote-code": REMOTE,
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
    **dict.fromkeys(("lora-modules", "default-mm-loras", "hf-config-path", "chat-template"), READS),
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
    r".*trust_remote_code": REMOTE,
    r"kv_(ip|port)": "opens ports",
    r".*(_path|_dir|_file)": "reads or writes the path in its value",
}
"""Keys inside JSON values that name Python code, paths and ports (vllm/config/ of 0.32.0), at any depth."""
CUSTOM = frozenset({"custom_class"})
"""Methods of speculation that import the class in `model`."""
VARIABLES: Mapping[str, str] = {
    r"VLLM_ALLOW_INSECURE_SERIALIZATION": "unpickles what the engine receives",
    r"VLLM_(PLUGINS|LOGGING_CONFIG_PATH|CONFIG_ROOT|MODEL_REDIRECT_PATH|RUST_FRONTEND_PATH|\w+_SO_PATH)": (
        "loads code or settings named in its value"
    ),
    r"VLLM_ALLOW_RUNTIME_LORA_UPDATING|VLLM_SERVER_DEV_MODE": "opens endpoints that change the engine",
    r"VLLM_PORT": "moves ports of ranks out of the range that the guard closes",
    r"VLLM_USE_MODELSCOPE": "changes where models come from",
}
"""Of vllm/envs.py of 0.32.0."""


def imports(name: str, text: str) -> bool:
    """Return whether vLLM may import the text at `name` (config/compilation.py and speculative.py of 0.32.0)."""
    return (
        (name == "compilation-config.backend" and text not in harmless.BACKENDS)
        or (name in ("speculative-config.method", "spec-method") and text in CUSTOM)
        or (name in ("speculative-config.model", "spec-model") and "." in text and "/" not in text)
    )


FLAGS = FlagFacts(
    harmless=harmless.VLLM_FLAGS | harmless.NEWER_FLAGS,
    effects=EFFECTS,
    secrets=SECRETS,
    keys=harmless.KEYS,
    key_effects=KEYS,
    imports=imports,
    variables=harmless.VARIABLES,
    variable_effects=VARIABLES,
)
