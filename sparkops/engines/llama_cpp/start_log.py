"""The phrases of llama-server's log of a start."""

from __future__ import annotations

import re

from sparkops.engines.llama_cpp.causes import CAUSES
from sparkops.engines.start_log import Stage, StartLog

# At its default verbosity llama-server prints few lines: none while tensors are read. The lines about the KV cache and
# the warm-up need `verbosity: 4`.
MARKERS: tuple[tuple[Stage, re.Pattern[str]], ...] = (
    (Stage.SERVING, re.compile(r"llama_server: (model loaded|listening on )")),
    (Stage.OPENING, re.compile(r"load_model: initializing, n_slots")),
    (Stage.WARMING, re.compile(r"warming up the model with an empty run")),
    (
        Stage.KV_CACHE,
        re.compile(r"llama_context: (constructing llama_context|n_ctx_seq \()|llama_kv_cache: {1,16}size ="),
    ),
    (Stage.WEIGHTS, re.compile(r"load_model: loading model '|load_tensors: loading model tensors")),
)
FATAL = re.compile(
    r"^(?:[\d.]{8,24} [EI] )?(?:srv {1,8}\S{1,64}: {1,8}|main: )"
    r"(?:exiting due to (?:model loading|HTTP server) error|couldn't bind HTTP server socket)"
    r"|^error(?: while handling argument|: invalid argument)|^\S{0,128}GGML_ASSERT\(.{0,256}\) failed"
)
"""Announcements alone, from the start of a line: a chat template may contain any text."""

LOG = StartLog(markers=MARKERS, fatal=FATAL, causes=CAUSES)
