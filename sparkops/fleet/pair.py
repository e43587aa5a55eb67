"""What only several ranks need: their network is tried first, they start as one, and one failure is explained."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sparkops.commands import docker, guard, runtime
from sparkops.commands.ranks import TOKEN, Seat
from sparkops.errors import NodeError, SparkopsError, StartFailed
from sparkops.facts import docker as docker_facts
from sparkops.facts import nccl
from sparkops.facts.docker import Container
from sparkops.fleet import hands, preflight, room
from sparkops.fleet.connected import Connected
from sparkops.fleet.hands import Hand
from sparkops.fleet.observe import containers
from sparkops.fleet.progress import Tell
from sparkops.fleet.revert import HandOf
from sparkops.plan.compilers import limit, memory_gib
from sparkops.plan.deploy import Observed, memory_steps
from sparkops.plan.environment import PER_NODE
from sparkops.plan.fabric import Fabric
from sparkops.plan.finding import require
from sparkops.plan.journal import Placed
from sparkops.plan.preflight import Ranks
from sparkops.plan.swap import SwapPlan
from sparkops.release import Rank

STALE_GRACE_S = 10  # ranks of an attempt that failed have nothing to finish


def try_network(connected: Connected, made: SwapPlan, observed: Mapping[str, Observed], tell: Tell) -> None:
    """Try the network that a pair will load over, and the image on it, before anything is stopped for it.

    Raises PlanRefused or NodesFailed.
    """
    facts = {rank.node: seen for rank in made.ranks if (seen := observed[rank.node].fabric)}
    if made.network and not running(made, observed):
        ray = made.release.recipe.serve.executor == "ray"
        ranks = Ranks(made.release.image, made.rank.meeting_port, ray=ray)
        require(preflight.run(connected, made.network, facts, ranks, tell))


def running(made: SwapPlan, observed: Mapping[str, Observed]) -> bool:
    """Whether green was there, whole, when the nodes were looked at."""
    return _whole([_own(rank, observed[rank.node].containers) for rank in made.ranks])


def _own(rank: Rank, containers: Sequence[Container]) -> Container | None:
    return next((each for each in containers if each.name == rank.container), None)


def _whole(ranks: Sequence[Container | None]) -> bool:
    """Whether every rank runs, and all are of one attempt."""
    alive = [each for each in ranks if each and each.running]
    return len(alive) == len(ranks) and len({each.generation for each in alive}) == 1


def start(made: SwapPlan, observed: Mapping[str, Observed], hand_of: HandOf, generation: str) -> None:
    """Create all ranks, then start them, rank 0 last, unless they run already. An earlier attempt's go first."""
    there = [hand_of(rank.node).container(rank.container) for rank in made.ranks]
    if _whole(there):
        return
    for container in there:
        if container:
            hand = hand_of(container.node)
            hand.say(f"removing {container.name} of an earlier attempt")
            hands.stop_engine(hand, container.name, STALE_GRACE_S)
            hand.run(docker.remove(container.name))
    if made.network is None:
        raise SparkopsError(f"the network of {made.release.id} is not known")
    token = secrets.token_hex(32).encode()
    for rank in made.ranks:
        room.take(hand_of(rank.node), memory_steps(rank, observed[rank.node]), made.release.recipe)
        node, new = observed[rank.node], replace(rank, generation=generation)
        hand = hand_of(rank.node)
        hand.say(f"creating rank {rank.index}")
        jobs = limit(rank, node.host, containers(hand.member))
        image, where = node.image or rank.release.image, seat(made.network, rank.node)
        hand.run(docker.create(new, node.config, image, jobs, where, memory_gib(rank, node.host, jobs)))
        if rank.release.recipe.serve.executor == "ray":
            hand.run(docker.put(rank.container, TOKEN, token))
    for rank in reversed(made.ranks):
        hand_of(rank.node).run(guard.FILTER)
        hand_of(rank.node).run(docker.start(rank.container))


def seat(network: Fabric, node: str) -> Seat:
    """Where a node's rank sits."""
    own, (head, *_) = network.ranks[node], network.ranks.values()
    per_node = tuple(name for name in own.env if name in PER_NODE)
    peers = tuple(rank.address for rank in network.ranks.values())
    return Seat(own.address, head.address, own.env, own.options, (*per_node, *runtime.LIMITS), peers)


def require_promised_network(green: Placed, hand_of: HandOf) -> None:
    """NCCL falls back to sockets without an error, and such a pair serves, slowly. Raises StartFailed."""
    for place in green.ranks if green.workers else ():
        member = hand_of(place.node).member
        inspect = member.engine.container(place.container)
        promised = nccl.promised(inspect["Config"]["Env"] or ()) if inspect else False
        if promised and (problem := nccl.problem(member.engine.log(place.container), rank=place == green.ranks[0])):
            step = "Compare what `sparkops plan` derives for this node with `ibv_devinfo` and `show_gids` there."
            raise StartFailed(place.node, f"{place.container}: {problem}", next_step=step)


def explain(made: SwapPlan, green: Placed, hand_of: HandOf, error: SparkopsError) -> None:
    """Note which ranks are dead, and where each was to meet the others: the failure of one is that of all."""
    if not green.workers:
        return
    for number, place in enumerate(green.ranks):
        try:
            error.add_note(f"rank {number} on {place.node}: {_state(hand_of(place.node), place.container)}")
        except (NodeError, OSError) as lost:
            error.add_note(f"rank {number} on {place.node}: nobody can look at it: {lost}")
    for line in _meeting(made):
        error.add_note(line)


def _state(hand: Hand, name: str) -> str:
    container = hand.container(name)
    if container is None:
        return "there is no container"
    how = "runs" if container.running else f"{container.state} with code {container.exit_code}"
    last = [text for _, text in docker_facts.log_lines(hand.member.engine.log(name, tail=1))]
    return f"{how}, image {container.image[:19]}" + (f", last line: {last[-1]}" if last else "")


def _meeting(made: SwapPlan) -> Iterator[str]:
    for rank in made.network.ranks.values() if made.network else ():
        yield f"{rank.node} was to meet at port {made.rank.meeting_port} with {rank.address} on {rank.interface}"
