"""llama.cpp's `llama-server`, which loads a GGUF file.

Facts of this package are from the sources in the sdist of llama-cpp-python 0.3.36, which is what
templates/llama-cpp.Dockerfile.j2 builds, and from runs of that build on a CPU and on an H200 (tests/captured).

/health answers 503 while the model loads, as all paths do (tools/server/server-http.cpp). `id` in /v1/models is the
first name in alphabetical order (model_alias in common/common.h is a set), so it gets one name. Without --offline it
would ask a hub for other files of the model. A prompt may have `ctx-size` tokens for all requests at once with
`kv-unified`, else that number divided by `parallel`.
"""

from __future__ import annotations

from sparkops.engines.engine import EngineKind
from sparkops.engines.launch import FlagForm
from sparkops.engines.llama_cpp.figures import FIGURES
from sparkops.engines.llama_cpp.flags import FLAGS
from sparkops.engines.llama_cpp.start_log import LOG

LLAMA_CPP = EngineKind(
    program="llama-server",
    arguments=("--model", "{model}", "--host", "{host}", "--port", "{port}", "--metrics", "--offline"),
    name_flag="alias",
    form=FlagForm(off="--no-{flag}", pair="--{flag} {value}"),  # add_opt in common/arg.cpp takes no --FLAG=VALUE
    taken=frozenset({"model", "host", "port", "alias", "metrics", "offline"}),
    backend="cpu",
    share=lambda _: 1.0,
    share_flag="",
    window_flag="ctx-size",
    template_flag="chat-template-file",
    flags=FLAGS,
    figures=FIGURES,
    log=LOG,
    pins=(),
    aliases=False,
    on_cpu={
        **dict.fromkeys(("n-gpu-layers", "gpu-layers"), frozenset(map(str, range(99)))),
        "device": frozenset({"none"}),
        **dict.fromkeys(("cpu-moe", "n-cpu-moe", "n-cpu-ffn", "override-tensor"), frozenset()),
    },
    gguf=True,
    unable={
        "version": "llama-server has no /version",
        "negatives": "llama-server answers requests for any model",
    },
)
