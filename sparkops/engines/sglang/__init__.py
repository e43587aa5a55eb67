"""SGLang: one node, or two and more with its own launcher."""

from __future__ import annotations

from sparkops.engines.engine import OFFLINE, EngineKind
from sparkops.engines.sglang.effects import FLAGS
from sparkops.engines.sglang.figures import FIGURES
from sparkops.engines.sglang.ranks import FORM, with_mp
from sparkops.engines.sglang.start_log import LOG

NODES = (
    *("tp-size", "tensor-parallel-size", "pp-size", "pipeline-parallel-size"),
    *("nnodes", "node-rank", "dist-init-addr", "nccl-init-addr"),
)
UNABLE = {
    "version": "SGLang has no /version",
    "negatives": "SGLang answers requests for unknown models",
}
"""The routes of sglang/srt/entrypoints/http_server.py of 0.5.23, and _parse_model_parameter in openai/serving_base.py,
which reads a name only for the adapter behind its colon."""
GB10_SHARE = 0.892
"""Share of a Spark's memory that SGLang takes by default for weights and KV cache: all but 13.1 of 121.7 GiB.

handle_gpu_memory_settings in sglang/srt/arg_groups/memory_hook.py of 0.5.23 leaves free, in MiB, 512 + 1.5 for each of
8192 tokens of a prefill + 2 for each of 256 requests of a graph + 128 for the rank, at least 10240. Graphs of prefills
and models with images lower it further."""

SGLANG = EngineKind(
    program="python3",
    # `sglang serve` is newer; both start 0.5.23, and this one the releases in images for GB10 as well.
    arguments=(
        *("-m", "sglang.launch_server", "--model-path={model}", "--host={host}", "--port={port}"),
        "--enable-metrics",
    ),
    name_flag="served-model-name",
    form=FORM,
    taken=frozenset({"host", "port", "served-model-name", "model-path", "model", "enable-metrics", *NODES}),
    backend="cu130",
    share=lambda _: GB10_SHARE,
    share_flag="mem-fraction-static",
    window_flag="context-length",
    flags=FLAGS,
    figures=FIGURES,
    log=LOG,
    # By default /health generates a token, takes a second at least, and waits behind long prompts for up to 20 s
    # (http_server.py). Without it, it is 503 until the server's own warm-up request is answered, then 200 at once; what
    # the model answers is for the suite, the bake and the watch. /health_generate still generates.
    env={**OFFLINE, "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"},
    published=frozenset({"lmsysorg/sglang"}),
    pins=(),  # a recipe names a finished image; which torch it has is the image's own affair
    aliases=False,
    executors={"mp": with_mp},
    unable=UNABLE,
)
