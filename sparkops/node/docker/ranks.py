"""The program of each rank of a replica, as its engine starts it."""

from __future__ import annotations

from sparkops.config.node import LOOPBACK
from sparkops.config.release import Rank
from sparkops.engines import ENGINES
from sparkops.engines.launch import RankPlace, RankProgram, Seat


def program(rank: Rank, models: str, seat: Seat | None = None) -> RankProgram:
    """Return the program of one rank. `models` is the model directory in its container; a single rank has no seat."""
    recipe = rank.release.recipe
    engine = ENGINES[recipe.engine]
    alone = RankProgram(engine.program, serve(rank, models))
    if seat is None:
        return alone
    sizes = recipe.serve.tensor_parallel, recipe.serve.pipeline_parallel
    return engine.executors[recipe.serve.executor](RankPlace(rank.index, *sizes, rank.rendezvous_port, seat), alone)


def serve(rank: Rank, models: str) -> tuple[str, ...]:
    """Return the arguments of the engine's program. `models` is where its container sees the node's model directory."""
    recipe = rank.release.recipe
    engine = ENGINES[recipe.engine]
    host = LOOPBACK if rank.callers == () else "0.0.0.0"  # noqa: S104 - the guard filters, or there is no gateway
    known = {"model": f"{models}/{recipe.model.loaded}", "host": host, "port": rank.port}
    given = (argument.format(**known) for argument in engine.arguments)
    name = [recipe.service, *recipe.serve.aliases] if recipe.serve.aliases else recipe.service
    return (*given, *engine.form.words({engine.name_flag: name, **recipe.serve.args}))
