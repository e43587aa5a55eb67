"""The end of each phase of a swap: one rule each, from the journal and the fleet's state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from sparkops.swap.effects import CutRequests, LeaderEffect, PointSlot, SwitchTraffic, WriteJournal
from sparkops.swap.fleet_state import EngineState, FleetState, GatewayView, Report
from sparkops.swap.journal import Journal, Swap, present
from sparkops.swap.model import Answer, Deployment, Phase, RankSpec, Replica
from sparkops.swap.orders import hold

RUNNING = (EngineState.LOADING, EngineState.HEALTHY)
AT_REST = (EngineState.ABSENT, EngineState.STOPPED)
PRESENT = (EngineState.STOPPED, *RUNNING)
Rule = Callable[[Journal, Swap, FleetState], LeaderEffect | Answer]
"""YES: the phase has reached its end. LATER: within `Swap.lasts_s`. NO and UNKNOWN: within `unknown_s`."""


def move(journal: Journal, fleet: FleetState, to: Deployment | None) -> LeaderEffect | Answer:
    """Switch the traffic to a release; it must answer through the gateway first."""
    if fleet.gateway is None:
        return Answer.UNKNOWN
    if fleet.gateway.serves(to) if to else fleet.gateway.active is None:
        return Answer.YES
    if to is not None and fleet.gateway.answer(to) is not Answer.YES:
        return fleet.gateway.answer(to)
    request_hold = None if to else hold(journal)
    switch = SwitchTraffic(to, request_hold, stopped=journal.stopping)
    return switch if fleet.replicated(journal) else Answer.UNKNOWN


def share(journal: Journal, swap: Swap, fleet: FleetState, to: Deployment) -> LeaderEffect | Answer:
    """Give the traffic to other replicas in the slot that has it: those in both serve on."""
    if fleet.gateway is None:
        return Answer.UNKNOWN
    if fleet.gateway.serves(to):
        comes = {rank.place for rank in swap.coming.heads} if to == swap.target else set[tuple[str, str]]()
        return Answer.NO if comes & fleet.gateway.down else Answer.YES
    ready = _proves(swap, fleet.gateway) if to == swap.target else _rest_serves(journal, swap, fleet)
    if ready is not Answer.YES:
        return ready
    if fleet.gateway.active is not to.slot:  # it was rebuilt
        return move(journal, fleet, to)
    return PointSlot(to) if fleet.replicated(journal) else Answer.UNKNOWN


def _proves(swap: Swap, gateway: GatewayView) -> Answer:
    """Return whether what comes answers through the gateway; where nothing comes there is nothing to ask."""
    return gateway.answer(swap.proving) if swap.coming.replicas else Answer.YES


def _rest_serves(journal: Journal, swap: Swap, fleet: FleetState) -> Answer:
    """Return whether enough replicas serve without those that leave. One that restarts has no share to lose."""
    if swap.restarts:
        return Answer.YES
    answers = [_runs(journal, replica, fleet) for replica in swap.kept]
    least = min(swap.target.limits.min_serving or len(answers), len(answers))
    return Answer.YES if answers.count(Answer.YES) >= least else Answer.NO


def _runs(journal: Journal, replica: Replica, fleet: FleetState) -> Answer:
    """Return whether a replica runs, its rank 0 is healthy, and it gets requests."""
    if fleet.gateway and replica.ranks[0].place in fleet.gateway.down:
        return Answer.NO
    runs = fleet.all(journal, replica.ranks, RUNNING)
    return fleet.all(journal, replica.ranks[:1], (EngineState.HEALTHY,)) if runs is Answer.YES else runs


def drained(
    source: Deployment, fleet: FleetState, *, restarts: bool = False, rest: Deployment | None = None
) -> LeaderEffect | Answer:
    """Return whether no request is in progress in a release; UNKNOWN if they cannot be counted.

    `restarts`: whether it starts again, so that no request in it can end well while it does not answer. `rest`: what
    serves on in its slot, if it is a part of it.
    """
    gateway = fleet.gateway
    if gateway is None:
        return Answer.UNKNOWN
    requests = gateway.requests_left(rest) if rest else gateway.requests(source)
    if not requests:
        return Answer.UNKNOWN if requests is None else Answer.YES
    silent = restarts and (rest is not None or gateway.answer(source) is Answer.NO)
    ends = silent or _has_ended(source, fleet) or fleet.sampled_s >= source.limits.drain_s
    return CutRequests(rest or source, left=rest is not None) if ends else Answer.LATER


def _has_ended(deployment: Deployment, fleet: FleetState) -> bool:
    """Return whether every replica has a rank that its guard reports as ended: no request in it can end well."""
    return all(
        any(
            (report := fleet.reports.get(rank.node)) and not report.engine(rank.container).state.running
            for rank in replica.ranks
        )
        for replica in deployment.replicas
    )


def _prepare(journal: Journal, swap: Swap, fleet: FleetState) -> LeaderEffect | Answer:
    """Wait until containers of an earlier change are gone: one of them could be taken for the new start.

    Wait for leases too: a guard may have granted one before it received this swap. It grants none while it knows of it.
    """
    places = {rank.place for rank in swap.coming.ranks}
    ending = [rank for rank in journal.stopped if rank.place in places]
    if ending and all(is_gone(journal, fleet, rank) for rank in ending):
        return WriteJournal(journal.confirmed_stopped(ending))
    if ending or leased(swap.coming, fleet):
        return Answer.NO
    exist = fleet.all(journal, swap.coming.ranks, PRESENT)
    return Answer.LATER if exist is Answer.YES and queued(swap.coming, fleet) else exist


def leased(target: Deployment, fleet: FleetState) -> str:
    """Return the work on a node of the target that must end before an engine loads; empty without any."""
    works = ((report.node, report.lease) for report in _before(target, fleet) if report.lease)
    return next((f"{node}: no engine loads during the {work}" for node, work in works), "")


def queued(target: Deployment, fleet: FleetState) -> str:
    """Return the engine of another service whose load a start of the target waits for; empty without one.

    It is waited for before the old release stops, too. A load may take hours, and is watched by its own guard.
    """
    loads = ((report.node, report.load) for report in _before(target, fleet) if report.load)
    return next((f"{node}: {engine} loads first" for node, engine in loads), "")


def _before(target: Deployment, fleet: FleetState) -> Iterator[Report]:
    """Yield the reports of nodes where a rank of the target does not run yet."""
    for rank in target.ranks:
        report = fleet.reports.get(rank.node)
        if report and not report.engine(rank.container).state.running:
            yield report


def is_gone(journal: Journal, fleet: FleetState, rank: RankSpec) -> bool:
    """Return whether a container is stopped for good: it would not start after a boot."""
    engine = fleet.engine(journal, rank)
    return engine is not None and not engine.state.running and fleet.reports[rank.node].armed != rank.container


def _quiesce(journal: Journal, swap: Swap, fleet: FleetState) -> LeaderEffect | Answer:
    serves = fleet.gateway is None or fleet.gateway.active is not None
    moved = share(journal, swap, fleet, swap.rest) if swap.rest and serves else move(journal, fleet, None)
    return moved if moved is not Answer.YES else _drain(journal, swap, fleet)


def _free(journal: Journal, swap: Swap, fleet: FleetState) -> Answer:
    """Wait until nothing that comes or leaves runs where ranks start. Other nodes stop theirs when they can."""
    ranks = (*swap.coming.ranks, *present(swap.leaving).ranks)
    return fleet.all(journal, [rank for rank in ranks if rank.node in swap.coming.nodes], AT_REST)


def _start(journal: Journal, swap: Swap, fleet: FleetState) -> Answer:
    """Wait until workers run, and rank 0 after them; LATER while another service's engine loads on one of the nodes."""
    ranks = swap.coming.workers if swap.phase is Phase.WORKERS else swap.coming.ranks
    running = fleet.all(journal, ranks, RUNNING)
    return Answer.LATER if running is Answer.NO and queued(swap.coming, fleet) else running


def _load(journal: Journal, swap: Swap, fleet: FleetState) -> Answer:
    """Wait for the load, which the guard on rank 0's node watches; it reports a stall."""
    healthy = fleet.all(journal, swap.coming.heads, (EngineState.HEALTHY,))
    loading = fleet.all(journal, swap.coming.ranks, RUNNING) is Answer.YES
    return Answer.LATER if loading and healthy is not Answer.YES else healthy


def _verify(journal: Journal, swap: Swap, fleet: FleetState) -> Answer:
    """Wait until every rank passed its checks for this start, and the release answers through the gateway."""
    proof = proven(journal, swap, fleet)
    if proof is not Answer.YES:
        return proof
    return fleet.gateway.answer(swap.proving) if fleet.gateway else Answer.UNKNOWN


def proven(journal: Journal, swap: Swap, fleet: FleetState) -> Answer:
    """Return whether every rank was verified for this start: smoke suite on rank 0, network; LATER meanwhile."""
    proofs = [fleet.engine(journal, rank) for rank in swap.coming.ranks]
    if not all(proof and proof.state.running for proof in proofs):
        return Answer.UNKNOWN
    passed = all(proof and proof.proven_key == swap.key and proof.proven is Answer.YES for proof in proofs)
    return Answer.YES if passed else Answer.LATER


def ended(journal: Journal, swap: Swap, fleet: FleetState) -> str:
    """Return which rank that came has ended or failed since the switch, as its guard reports; empty without any.

    Answers through the gateway do not disprove it: another program may have taken the engine's port.
    """
    for rank in swap.coming.ranks:
        engine = fleet.engine(journal, rank)
        if engine and (engine.problem or not engine.state.running) and not engine.refused:
            return f"{rank.node}: {engine.problem or f'{rank.container} ended'}"
    return ""


def _bake(journal: Journal, swap: Swap, fleet: FleetState) -> Answer:
    """Wait until the bake is over, with every rank running; its clock stops without samples.

    Of several replicas one may be on a silent node: it has passed its checks, and the others answer.
    """
    if fleet.gateway is None:
        return Answer.UNKNOWN
    running = [fleet.all(journal, replica.ranks, RUNNING) for replica in swap.coming.replicas]
    if Answer.NO in running:
        return Answer.NO
    if Answer.YES not in running:
        return Answer.UNKNOWN
    baked = swap.automatic and fleet.sampled_s >= swap.target.limits.bake_s
    answer = fleet.gateway.answer(swap.proving)
    return Answer.LATER if answer is Answer.YES and not baked else answer


def _promote(journal: Journal, swap: Swap, fleet: FleetState) -> Answer:
    """Wait until every node of what came has its boot record and engine, and another guard a copy of this journal.

    A guard starts a lone engine that has ended from its boot record. A replica over several nodes is restarted as a
    whole after the swap. A silent node gets its boot record later, if another replica has its own.
    """
    kept = [_is_armed(journal, replica, fleet) for replica in swap.coming.replicas]
    enough = all(kept) or (any(kept) and fleet.waited_s >= swap.target.limits.unknown_s)
    return Answer.YES if enough and fleet.replicated(journal) else Answer.NO


def _is_armed(journal: Journal, replica: Replica, fleet: FleetState) -> bool:
    """Return whether the boot record of each node names its rank, and a lone rank runs."""
    known = [(rank, fleet.reports.get(rank.node)) for rank in replica.ranks]
    armed = all(report and report.follows(journal) and report.armed == rank.container for rank, report in known)
    return armed and (len(replica.ranks) > 1 or fleet.all(journal, replica.ranks, RUNNING) is Answer.YES)


def _drain(_: Journal, swap: Swap, fleet: FleetState) -> LeaderEffect | Answer:
    leaving = present(swap.leaving)
    if swap.rest and swap.reverting:  # a return that is retried withdraws what came, too
        leaving = replace(leaving, replicas=(*leaving.replicas, *swap.coming.replicas))
    return drained(leaving, fleet, restarts=swap.restarts, rest=swap.rest)


def _switch(journal: Journal, swap: Swap, fleet: FleetState) -> LeaderEffect | Answer:
    return share(journal, swap, fleet, swap.target) if swap.kept else move(journal, fleet, swap.target)


def _retire(journal: Journal, swap: Swap, fleet: FleetState) -> Answer:
    """Keep the old release warm for a quick return, and longer while only it answers.

    One that has ended is not warm: the swap is over, and what was promoted is restarted if it has ended too.
    """
    if swap.reverting or fleet.all(journal, present(swap.source).ranks, RUNNING) is Answer.NO:
        return Answer.YES
    if fleet.gateway is None:
        return Answer.UNKNOWN
    warm = fleet.sampled_s < present(swap.source).limits.keep_old_s
    answer = fleet.gateway.answer(swap.target)
    return Answer.LATER if answer is Answer.YES and warm else answer


RULES: Mapping[Phase, Rule] = {
    Phase.PREPARE: _prepare,
    Phase.QUIESCE: _quiesce,
    Phase.FREE: _free,
    Phase.WORKERS: _start,
    Phase.START: _start,
    Phase.LOAD: _load,
    Phase.VERIFY: _verify,
    Phase.SWITCH: _switch,
    Phase.BAKE: _bake,
    Phase.PROMOTE: _promote,
    Phase.DRAIN: _drain,
    Phase.RETIRE: _retire,
}
