"""What must hold when a leader writes its journal: a phase has done its work, and its clock has run out."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.swap.journal import RESTARTS, Journal, Swap, present
from sparkops.swap.model import Answer, Deployment, Phase, Replica
from tests.swap.simulation.world import GARBLED, Leader, World


def writing(world: World, leader: Leader, new: Journal) -> Iterator[str]:
    """Return what is wrong with a new journal."""
    old = leader.journal
    yield from _promoting(world, leader, new)
    yield from _returning(world, old.swap, new.swap)
    yield from _forgetting(world, old, new)
    yield from _recovering(world, old, new)
    for replica in present(new.swap).kept if leaves_out(leader, new) else ():
        if not (_fails(leader, replica) or (leader.waited and replica.nodes - reported(leader))):
            yield f"8: a start leaves {replica.ranks[0].container} out, which neither fails nor is silent"
    if not old.stopping and not new.stopping:
        yield from _waiting(leader, new)
    spent = old.restarts >= RESTARTS
    if new.trouble and not old.trouble and not (leader.waited or leader.failing or spent):
        yield f"8: an operator is needed before the bound of this wait has passed: {new.trouble}"


def leaves_out(leader: Leader, new: Journal) -> bool:
    """Whether a start of several replicas, while none serves, begins anew without some of them."""
    old = leader.journal.swap
    return bool(old and new.swap and old.offline and old.retries and new.swap.kept)


def _fails(leader: Leader, replica: Replica) -> bool:
    """Whether a guard reports that a rank has failed or does not run."""
    reports = {report.node: report for report in leader.reports}
    known = [reports[rank.node].engine(rank.container) for rank in replica.ranks if rank.node in reports]
    return any(engine.problem or not engine.state.running or engine.proven is Answer.NO for engine in known)


def reported(leader: Leader) -> set[str]:
    """The nodes whose guards report."""
    return {report.node for report in leader.reports}


def _waiting(leader: Leader, new: Journal) -> Iterator[str]:
    """A release is proven before the switch, baked before its promotion, and kept warm before it stops."""
    before, after = leader.journal.swap, new.swap
    if before is None or before.reverting or (after is not None and after.reverting):
        return
    phase = after.phase if after else None
    if before.phase is Phase.VERIFY and phase is Phase.SWITCH and not _proven(leader, before):
        yield f"6: {before.target.release} is switched to before it has passed its checks"
    if before.phase is Phase.BAKE and phase is Phase.PROMOTE and not (before.automatic and leader.sampled):
        yield f"8: {before.target.release} is promoted before its bake has ended"
    if before.phase is Phase.BAKE and phase is Phase.PROMOTE and (down := _not_running(leader, before.coming)):
        yield f"15: {before.target.release} is promoted while {down} does not run"
    ended = before.source and _not_running(leader, before.source)
    if before.phase is Phase.RETIRE and phase is None and not leader.sampled and not ended:
        yield "8: the old release stops before its time has passed"


def _proven(leader: Leader, swap: Swap) -> bool:
    reports = {report.node: report for report in leader.reports}
    proofs = [reports[rank.node].engine(rank.container) for rank in swap.coming.heads if rank.node in reports]
    return bool(proofs) and all(proof.proven is Answer.YES and proof.proven_key == swap.key for proof in proofs)


def _not_running(leader: Leader, release: Deployment) -> str:
    """A rank of a release that no report shows as running; empty without any.

    Of several replicas those on silent nodes do not count, if another one runs.
    """
    reports = {report.node: report for report in leader.reports}
    heard = [replica for replica in release.replicas if replica.nodes <= set(reports)] or release.replicas
    known = {rank: reports.get(rank.node) for replica in heard for rank in replica.ranks}
    down = (rank for rank, report in known.items() if not report or not report.engine(rank.container).state.running)
    return next((rank.container for rank in down), "")


def _promoting(world: World, leader: Leader, new: Journal) -> Iterator[str]:
    """A promotion ends with a boot record on each node and the journal on another one."""
    old, before, after = leader.journal, leader.journal.swap, new.swap
    if before is None or before.phase is not Phase.PROMOTE or old.stopping or new.stopping:
        return
    if after is not None and not after.reached(Phase.DRAIN):
        return
    if before.kept and leader.waited:
        return  # its node was given up: the others serve, and it starts when its guard replies
    for rank in before.coming.ranks:
        if leader.waited and len(before.coming.replicas) > 1 and rank.node not in reported(leader):
            continue  # its guard gets the order when it replies
        machine = world.machine(rank.node)
        if machine.record.armed != rank and not machine.lost:
            yield f"3: {rank.container} is promoted and would not start after a boot"
    if before.coming.alone and (down := _not_running(leader, before.coming)):
        yield f"15: the promotion of {before.target.release} ends while {down} does not run"
    peers = [name for name in old.peers if world.reaches(old.leader, name) and not _silent(world, leader, name)]
    copies = [machine.record.copy for machine in world.machines if machine.name != old.leader]
    if peers and not any(copy and copy.position >= old.position for copy in copies):
        yield "17: a promotion ends that no other guard knows of"


def _silent(world: World, leader: Leader, node: str) -> bool:
    """Whether a guard has not reported for long, since Docker does not reply to it: to its leader it is as one lost."""
    return world.machine(node).mute and node not in reported(leader)


def _returning(world: World, old: Swap | None, new: Swap | None) -> Iterator[str]:
    """While both releases run, requests return to the old one only if it answers."""
    returns = old and new and new.reverting and not old.reverting and old.reached(Phase.SWITCH)
    if not (old and new and old.source and returns) or old.stops_source:
        return
    if not new.stops_source and world.answers(old.source.slot) is not Answer.YES:
        yield f"2: the swap returns to {old.source.release}, which does not answer"
    if new.stops_source and world.serves(old.target.slot) is Answer.YES:
        yield f"5: {old.target.release} answers and stops for {old.source.release}, which does not run"


def _recovering(world: World, old: Journal, new: Journal) -> Iterator[str]:
    """An operator is needed until the nonsense has ended or the service stops, not until no guard reports it."""
    active = old.active
    stops = old.stopping or new.stopping or new.active is None
    if active is None or stops or old.unfinished or new.unfinished or not old.trouble or new.trouble:
        return
    found = (known for rank in active.heads for known in world.machine(rank.node).found)
    if world.runs(active) is not Answer.YES and any(what == GARBLED for _, what in found):
        yield f"8: {active.release} answers nonsense, and no operator is needed any more"


def _forgetting(world: World, old: Journal, new: Journal) -> Iterator[str]:
    """A container is off the list of those to stop once it neither runs nor would start, and on it once."""
    if len({rank.place for rank in new.stopped}) < len(new.stopped):
        yield "8: a container is to be stopped twice"
    for rank in set(old.stopped) - set(new.stopped):
        machine = world.machine(rank.node)
        engine = machine.engine(rank.container)
        if not machine.lost and (machine.record.armed == rank or (engine and engine.running)):
            yield f"8: {rank.container} is not to be stopped any more, and runs or would start"
