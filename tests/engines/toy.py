"""A toy engine: what the module of a new one contains. test_toy.py puts it beside the others."""

from __future__ import annotations

import re

from sparkops.engines.causes import Cause
from sparkops.engines.engine import EngineKind
from sparkops.engines.figures import Figures
from sparkops.engines.flags import READS, FlagFacts
from sparkops.engines.launch import FlagForm, RankPlace, RankProgram
from sparkops.engines.start_log import Stage, StartLog


def join(place: RankPlace, alone: RankProgram) -> RankProgram:
    """Return the program of one rank of several."""
    meet = f"--meet={place.seat.head}:{place.port}", f"--rank={place.index}/{place.size}"
    return RankProgram(alone.entrypoint, (*alone.arguments, *meet), place.seat.env, place.seat.options)


TOY = EngineKind(
    program="toy-server",
    arguments=("--model", "{model}", "--host", "{host}", "--port", "{port}"),
    name_flag="alias",
    form=FlagForm(off="--no-{flag}", pair="--{flag} {value}"),
    taken=frozenset({"model", "host", "port", "alias", "meet", "rank"}),
    backend="cpu",
    share=lambda _: 0.5,
    share_flag="memory-share",
    flags=FlagFacts(harmless=frozenset({"context", "memory-share"}), effects={"grammar-file": READS}),
    figures=Figures(running="toy:running", generated="toy:tokens_total", steps=("toy:tokens_total",)),
    log=StartLog(
        markers=((Stage.SERVING, re.compile("toy is ready")), (Stage.WEIGHTS, re.compile("toy loads"))),
        fatal=re.compile("toy gives up"),
        causes=(Cause("toy gives up: (.+)", "the toy lacks {}", "Give it {}."),),
    ),
    env={"TOY_HOME": "/home/engine"},
    unable={"version": "the toy has no /version"},
    pins=(),
    aliases=False,
    executors={"mp": join},
    own_address=("TOY_ADDRESS",),
)
