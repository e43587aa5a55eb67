"""vLLM's command line: the form of its flags, and its ranks on several nodes."""

from __future__ import annotations

from dataclasses import replace

from sparkops.engines import ray
from sparkops.engines.launch import FlagForm, RankPlace, RankProgram

FORM = FlagForm(
    off="--no-{flag}",
    json_lists=frozenset({"allowed-origins", "allowed-methods", "allowed-headers"}),
    repeated=frozenset({"middleware"}),
)
"""A list is nargs='+', a repeated flag action='append' (vllm/entrypoints/launchers/cli_args.py and
utils/argparse_utils.py of 0.32.0)."""


def with_ray(place: RankPlace, alone: RankProgram) -> RankProgram:
    """Return the program of a rank of vLLM's Ray executor."""
    return ray.join(place, _with(alone, *_sizes(place), "--distributed-executor-backend=ray"))


def with_mp(place: RankPlace, alone: RankProgram) -> RankProgram:
    """Return the program of a rank of vLLM's own launcher. Ranks above 0 serve no API."""
    seat = place.seat
    joins = (f"--nnodes={place.size}", f"--node-rank={place.index}", f"--master-addr={seat.head}")
    headless = ("--headless",) if place.index else ()
    join = (*joins, f"--master-port={place.port}", *headless)
    ranked = _with(alone, *_sizes(place), *join)
    return replace(ranked, env=seat.env, options=seat.options)


def _sizes(place: RankPlace) -> tuple[str, ...]:
    stages = (f"--pipeline-parallel-size={place.pipeline}",) if place.pipeline > 1 else ()
    return (f"--tensor-parallel-size={place.tensor}", *stages)


def _with(alone: RankProgram, *words: str) -> RankProgram:
    return replace(alone, arguments=(*alone.arguments, *words))
