"""Flags and variables of SGLang that run code, read or write files, open ports or hold secrets."""

from __future__ import annotations

from collections.abc import Mapping

from sparkops.engines.flags import IMPORTS, READS, READS_FLAGS, REMOTE, WRITES, FlagFacts
from sparkops.engines.sglang import harmless

PORTS = "opens ports"
EFFECTS: Mapping[str, str] = {
    "trust-remote-code": REMOTE,
    "config": READS_FLAGS,
    "enable-custom-logit-processor": "runs Python code of clients",
    "trust-request-chat-template": "runs chat templates of clients",
    "tool-server": "may run code written by the model",
    "delete-ckpt-after-loading": "deletes the checkpoint",
    "otlp-traces-endpoint": "sends traces of requests to the address in its value",
    "smg-grpc-mode": "replaces the HTTP server that the gateway and its limits are for",
    "grpc-mode": "replaces the HTTP server that the gateway and its limits are for",
    "use-ray": "starts workers on a Ray cluster that sparkops does not know",
    "remote-instance-weight-loader-start-seed-via-transfer-engine": "opens endpoints that send the weights",
    "checkpoint-engine-wait-weights-before-ready": "waits for weights that clients send",
    "forward-hooks": IMPORTS,
    "custom-weight-loader": IMPORTS,
    "sidecar": IMPORTS,
    "hicache-storage-backend": "imports Python code or writes to paths named in another flag",
    **dict.fromkeys(
        (
            "dp-size",
            "data-parallel-size",
            "attn-dp-size",
            "attention-data-parallel-size",
            "enable-dp-attention",
            "nccl-port",
            "grpc-port",
            "gated-launch-port",
            "disaggregation-mode",
            "disaggregation-bootstrap-port",
            "encoder-bootstrap-port",
            "engine-info-bootstrap-port",
            "kv-events-config",
            "load-publish-endpoint",
            "decoupled-spec-bind-endpoint",
        ),
        PORTS,
    ),
    **dict.fromkeys(
        (
            "chat-template",
            "completion-template",
            "tokenizer-path",
            "quantization-param-path",
            "deepep-config",
            "init-expert-location",
            "watermark-config",
            "lora-paths",
            "uno-lora-path",
            "speculative-token-map",
            "speculative-adaptive-config",
            "speculative-dspark-sps-table-path",
            "speculative-dspark-confidence-sts-path",
            "speculative-ngram-external-corpus-path",
            "lmcache-config-file",
            "flexkv-config-file",
            "kt-weight-path",
            "ssl-keyfile",
            "ssl-certfile",
            "ssl-ca-certs",
        ),
        READS,
    ),
    **dict.fromkeys(
        (
            "download-dir",
            "file-storage-path",
            "crash-dump-folder",
            "log-requests-target",
            "export-metrics-to-file-dir",
            "debug-tensor-dump-output-folder",
            "modelopt-export-path",
            "modelopt-checkpoint-save-path",
            "ple-offload-dir",
            "spec-trace-dir",
        ),
        WRITES,
    ),
}
"""From the help of the fields in sglang/srt/arg_groups/fields/ of 0.5.23, and `PortArgs` in server_args.py: with data
parallelism the processes of one server are connected by TCP instead of Unix sockets."""
SECRETS = frozenset({"api-key", "admin-api-key", "ssl-keyfile-password"})
KEYS: Mapping[str, str] = {
    r".*(module_path|class_name|auto_map)": IMPORTS,
    r".*trust_remote_code": REMOTE,
    r".*(_path|_dir|_file)": "reads or writes the path in its value",
}
VARIABLES: Mapping[str, str] = {
    r"SGLANG_(EXTERNAL_\w+|PLUGINS|PLATFORM|HTTP_SERVER_APP_PATH|LOGGING_CONFIG_PATH)": (
        "loads code or settings named in its value"
    ),
    r"SGLANG_USE_MODELSCOPE": "changes where models come from",
    r"SGLANG_RUST_SERVER": "replaces the HTTP server that the gateway and its limits are for",
    r"SGLANG_(GRPC_PORT|PORT|TCP_STORE_PORT|BACKUP_PORT_BASE|LOAD_SNAPSHOT_USE_ZMQ)": PORTS,
    r"SGLANG_EXPOSE_OWN_ENV_VARS": "shows its environment to clients",
    r"SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE": "changes where the ranks meet",
}
"""Of sglang/srt/environ.py of 0.5.23; SGLANG_LOGGING_CONFIG_PATH is in sglang/srt/utils/common.py."""
FLAGS = FlagFacts(
    harmless=harmless.FLAGS | harmless.OLDER_FLAGS,
    effects=EFFECTS,
    secrets=SECRETS,
    keys=harmless.KEYS,
    key_effects=KEYS,
    variables=harmless.VARIABLES,
    variable_effects=VARIABLES,
)
