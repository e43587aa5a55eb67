"""What an engine declares: one value, the same for every inference server. docs/engines.md describes how to add one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sparkops.engines.figures import Figures
from sparkops.engines.flags import FlagFacts
from sparkops.engines.launch import FlagForm, RankPlace, RankProgram
from sparkops.engines.start_log import StartLog

Join = Callable[[RankPlace, RankProgram], RankProgram]
"""Return the program of one rank of several, from that of a rank alone."""
OFFLINE = {"HF_HUB_OFFLINE": "1"}  # the weights are on the node, and a hub that throttles must not matter


@dataclass(frozen=True)
class EngineKind:
    """One inference server: how its container starts, and what sparkops knows of it."""

    program: str
    """Program of the container."""
    arguments: tuple[str, ...]
    """Arguments before those of the recipe: {model} is a directory, or the file of `gguf`; {host} the address to listen
    on."""
    name_flag: str
    """The flag with the name for clients."""
    form: FlagForm
    """How it reads the other arguments."""
    taken: frozenset[str]
    """Arguments that a recipe may not give: sparkops sets them from its other keys."""
    backend: str
    """Where it computes if its image names no torch: `cpu`, or a CUDA build such as `cu130`."""
    share: Callable[[str | None], float]
    """Return the share of a GPU's memory that it takes unless `share_flag` says otherwise, by `image.vllm`."""
    flags: FlagFacts
    """What its flags and variables may do."""
    log: StartLog
    """Phrases of its log."""
    figures: Figures | None = None
    """Names of its figures on /metrics; None where sparkops knows none."""
    share_flag: str = "gpu-memory-utilization"
    """The flag with that share; empty for an engine that takes what its model and its context need."""
    cache_flag: str = ""
    """The flag with the bytes of the KV cache, in place of that share (vllm/config/cache.py); empty for none."""
    window_flag: str = "max-model-len"
    """The flag with the tokens of the context."""
    template_flag: str = "chat-template"
    """The flag with the file of a chat template."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of its container, before that of the recipe."""
    pins: tuple[str, ...] = ("torch", "vllm")
    """Keys of `image` that a recipe must state where its image is built; none where that is no Python's."""
    published: frozenset[str] = frozenset()
    """Images and Python packages of the engine's own project, without tag and version."""
    aliases: bool = True
    """Whether it takes several names for clients."""
    executors: Mapping[str, Join] = field(default_factory=dict)
    """By name, what joins several ranks; none if it runs on one node only."""
    unable: Mapping[str, str] = field(default_factory=dict)
    """Checks of the smoke suite that it cannot pass, with the reason; a recipe may enable them."""
    own_address: tuple[str, ...] = ()
    """Variables with the address of a rank's own node."""
    weights: bool = True
    """Whether it reads a model, so that the model's config.json, or the file of `gguf`, must be there."""
    on_cpu: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Flags, with the values, by which a recipe leaves the model or layers of it to the CPU; no values: any."""
    gguf: bool = False
    """Whether it loads one GGUF file, which a recipe names in `model.file`, and no directory."""
    tasks: frozenset[str] = frozenset({"chat"})
    """Tasks that a recipe may serve with it."""
    bench: tuple[str, ...] = ()
    """What its package benchmarks a server with: the module for `python -m` and its first arguments; empty for none."""
