"""The leader's half of the machine: from the journal and what was seen to one effect. The same after any crash.

A change of the journal is written before anything follows from it, and what follows is derived from the journal, so a
leader that restarts continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparkops.swap.effects import LeaderEffect, PointSlot, SwitchTraffic, WriteJournal
from sparkops.swap.fleet_state import GARBAGE, EngineState, FleetState, GatewayView, why_deposed
from sparkops.swap.journal import HOUR_S, RESTARTS, Journal, Swap, present
from sparkops.swap.model import Answer, Deployment, Limits, Mode, Phase, RankSpec, Replica
from sparkops.swap.orders import hold, slots, traffic
from sparkops.swap.phases import AT_REST, RULES, RUNNING, drained, ended, is_gone, leased, move, proven, queued
from sparkops.swap.trouble import BY_HAND


def step(journal: Journal, fleet: FleetState) -> LeaderEffect | None:
    """Return the next effect; None while nothing is due."""
    if fleet.deposed(journal) or not fleet.confirmed(journal):
        return None
    effect = _due(journal, fleet)
    if effect != fleet.tried:
        return effect
    why = f"{effect}: {fleet.why or 'it changes nothing'}"
    return _give_up(journal, fleet, why, waited_s=fleet.tried_s) or effect


def _due(journal: Journal, fleet: FleetState) -> LeaderEffect | None:
    if unset := _unset(journal, fleet):
        return unset
    if journal.stopping:
        return _stop(journal, fleet)
    if journal.restarts and fleet.rested_s >= HOUR_S:
        return WriteJournal(journal.changed(restarts=0))
    return _continue(journal, journal.swap, fleet) if journal.swap else _idle(journal, fleet)


def _continue(journal: Journal, swap: Swap, fleet: FleetState) -> LeaderEffect | None:
    """Revert if the target has failed; enter the next phase if this one has ended."""
    if why := failure(journal, swap, fleet):
        if failing := _left_out(journal, lambda replica: _rank_failing(journal, swap, replica.ranks, fleet)):
            return WriteJournal(journal.left_out(failing, why))
        reverted = journal.reverted(why, ended=_both_end(journal, swap, fleet))
        restarts = reverted.restarts > journal.restarts
        waits = reverted is journal or (restarts and journal.pauses(fleet.rested_s))
        return None if waits else WriteJournal(reverted)
    if _none_serves_on(journal, swap, fleet):
        return WriteJournal(journal.settled(swap.why or f"every replica of {journal.service} has ended"))
    reached = RULES[swap.phase](journal, swap, fleet)
    if not isinstance(reached, Answer):
        return reached
    if reached is Answer.YES:
        return WriteJournal(journal.advanced())
    longest_s = swap.lasts_s if reached is Answer.LATER else swap.target.limits.unknown_s
    if reached is Answer.LATER and journal.trouble and fleet.waited_s < longest_s:
        return WriteJournal(journal.changed(trouble=""))  # what was unknown is known again
    return _give_up(journal, fleet, _waits(swap, fleet), longest_s)


def needs_operator(journal: Journal, fleet: FleetState) -> str:
    """Return why only an operator can continue; empty while the fleet can. After a rebuild another guard leads."""
    if fleet.lost(journal):
        return why_deposed(journal)
    if not fleet.confirmed(journal):
        return f"no other guard confirms that {journal.leader} leads; give up lost nodes with --without"
    return journal.trouble


def _unset(journal: Journal, fleet: FleetState) -> LeaderEffect | None:
    """Restore the state of a rebuilt gateway: servers in its slots, the release that serves, the hold."""
    gateway = fleet.gateway
    if gateway is None:
        return None
    for deployment in slots(journal):
        if not gateway.has(deployment) and gateway.active is not deployment.slot:
            return PointSlot(deployment)
    serving, swap = traffic(journal), journal.swap
    if serving is None and gateway.active is None:
        request_hold = hold(journal, fleet.sampled_s)
        mark = request_hold.mark if request_hold else ""
        starts = gateway.stopped and swap is not None and not journal.stopping
        return SwitchTraffic(None, request_hold) if gateway.held != mark or starts else None
    if gateway.active or swap is None or swap.phase is Phase.SWITCH or gateway.answer(serving) is not Answer.YES:
        return None
    failed = serving == swap.target and failure(journal, swap, fleet)  # another program may answer on its port
    return None if failed else SwitchTraffic(serving)


def _waits(swap: Swap, fleet: FleetState) -> str:
    """Return what a phase waits for, as far as reports say it."""
    for rank in swap.coming.ranks:
        report = fleet.reports.get(rank.node)
        if report and (problem := report.engine(rank.container).problem):
            return f"{rank.node}: {problem}"
    work = leased(swap.coming, fleet) if swap.phase is Phase.PREPARE else ""
    return work or queued(swap.coming, fleet) or f"no progress in phase '{swap.phase}'"


def _give_up(
    journal: Journal, fleet: FleetState, why: str, longest_s: float | None = None, waited_s: float | None = None
) -> LeaderEffect | None:
    """Return the effect at the bound of a wait: a revert if the old release runs or can start, else an operator's need.

    It can start in place if all of it is known to be at rest, and no change of the gateway fails, which a return needs.
    """
    bound_s = max((item.limits.unknown_s for item in journal.deployments), default=Limits().unknown_s)
    passed_s = fleet.waited_s if waited_s is None else waited_s
    if passed_s < (bound_s if longest_s is None else longest_s):
        return None
    if _returns(journal, fleet):
        return WriteJournal(journal.reverted(why))
    if swap := _served_by_others(journal):
        return WriteJournal(journal.settled(swap.why or why))
    if silent := _left_out(journal, lambda replica: not replica.nodes <= set(fleet.reports)):
        return WriteJournal(journal.left_out(silent, why))
    return None if journal.trouble else WriteJournal(journal.changed(trouble=why))


def _served_by_others(journal: Journal) -> Swap | None:
    """Return a swap of some replicas that may end where it is: the others serve, and what leaves has no requests."""
    swap = journal.swap
    return swap if swap and swap.kept and swap.reached(Phase.FREE) and not journal.stopping else None


def _left_out(journal: Journal, out: Callable[[Replica], object]) -> tuple[Replica, ...]:
    """Return the replicas for which `out` is true, if the others can start without them; else none.

    That is so while several of the promoted release start at once, before any has the traffic.
    """
    swap = journal.swap
    if swap is None or swap.kept or swap.reached(Phase.SWITCH) or journal.stopping:
        return ()
    left = tuple(replica for replica in swap.target.replicas if out(replica))
    return left if swap.target == journal.active and len(left) < len(swap.target.replicas) else ()


def _none_serves_on(journal: Journal, swap: Swap, fleet: FleetState) -> bool:
    """Return whether a swap waits for replicas to serve on of which none does, and which only the leader starts.

    After a loss of power no guard starts a replica over several nodes. At the end of the swap all start at once.
    """
    waits = swap.phase is Phase.QUIESCE and swap.kept and not swap.restarts
    return bool(waits) and not present(swap.source).alone and _rests(journal, swap.source, fleet)


def _returns(journal: Journal, fleet: FleetState) -> bool:
    """Return whether a revert gains a release: where nothing serves and the old one cannot start, it gains nothing."""
    swap = journal.swap
    if swap is None or swap.source is None or journal.stopping:
        return False
    in_place = not swap.retries and not swap.reached(Phase.PROMOTE if swap.kept else Phase.SWITCH)
    rests = (fleet.all(journal, replica.ranks, AT_REST) is Answer.YES for replica in present(swap.leaving).replicas)
    starts = bool(swap.kept) or (any(rests) and not fleet.tried)
    return swap.keeps_source or (in_place and (swap.phase is Phase.QUIESCE or starts))


def _stop(journal: Journal, fleet: FleetState) -> LeaderEffect | None:
    """Stop the service: traffic first, then open requests, then engines. A release in no slot has no requests."""
    pointed = [item for item in journal.pointed if fleet.gateway and fleet.gateway.has(item)]
    empty = (drained(item, fleet, rest=rest) for item in pointed for rest in (None, item))
    for reached in (move(journal, fleet, None), *empty):
        if reached is Answer.UNKNOWN:
            return _give_up(journal, fleet, "the gateway cannot be read; the service is not stopped")
        if reached is not Answer.YES:
            return None if isinstance(reached, Answer) else reached
    return WriteJournal(journal.offline())


def _idle(journal: Journal, fleet: FleetState) -> LeaderEffect | None:
    """Confirm stopped containers, and keep the promoted release in service, while no change is in progress."""
    gone = [rank for rank in journal.stopped if is_gone(journal, fleet, rank)]
    if gone:
        return WriteJournal(journal.confirmed_stopped(gone))
    if back := {node for node in journal.without if node in fleet.reports}:
        return WriteJournal(journal.changed(without=journal.without - back))
    if fleet.gateway is None:
        return None
    return _serve(journal, fleet, fleet.gateway)


def _serve(journal: Journal, fleet: FleetState, gateway: GatewayView) -> LeaderEffect | None:
    """Give the traffic to the promoted release as soon as it answers."""
    active, answer = journal.active, gateway.answer(journal.active)
    if active is None:
        return SwitchTraffic(None) if gateway.active else _recovered(journal)
    if not gateway.has(active):
        return PointSlot(active)
    if repaired := _repair_replica(journal, active, fleet):
        return repaired
    if answer is Answer.NO or _rests(journal, active, fleet):  # another program may answer on its port
        return _repair(journal, active, fleet, gateway)
    if answer is Answer.YES and not gateway.serves(active):
        return SwitchTraffic(active)
    if why := fleet.garbled(journal, active):
        return _give_up(journal, fleet, why)
    unheard = any(fleet.engine(journal, rank) is None for rank in active.heads)
    if answer is not Answer.YES or (unheard and GARBAGE in journal.trouble):  # only its guard sees that garbage ends
        return None
    return _recovered(journal)


def _recovered(journal: Journal) -> LeaderEffect | None:
    """Forget why an operator was needed."""
    return WriteJournal(journal.changed(trouble="")) if journal.trouble else None


def _repair_replica(journal: Journal, active: Deployment, fleet: FleetState) -> LeaderEffect | None:
    """Restart a replica that is dead or answers garbage while others serve.

    The guard restarts one of a single rank that has ended. Of a single replica, garbage is left to an operator: it may
    be better than nothing.
    """
    dead = [replica for replica in active.replicas if _is_dead(journal, active.only([replica]), fleet)]
    if not dead or len(dead) == len(active.replicas) or journal.restarts >= RESTARTS or journal.pauses(fleet.rested_s):
        return None
    restarted = active.only(dead[:1])
    why = fleet.dead(journal, restarted) or fleet.garbled(journal, restarted)
    return WriteJournal(journal.restarted(why, active.less(dead[:1]).replicas))


def _is_dead(journal: Journal, replica: Deployment, fleet: FleetState) -> bool:
    """Return whether only the leader can restart a replica: a rank rests, or its watch finds it dead or garbled."""
    known = [fleet.engine(journal, rank) for rank in replica.ranks]
    if any(engine is None or engine.by_hand for engine in known):
        return False
    late = not replica.alone or fleet.waited_s >= replica.limits.unknown_s  # else its guard starts it
    rests = late and fleet.all(journal, replica.ranks, RUNNING) is Answer.NO
    return rests or bool(fleet.dead(journal, replica) or fleet.garbled(journal, replica))


def _repair(journal: Journal, active: Deployment, fleet: FleetState, gateway: GatewayView) -> LeaderEffect | None:
    """Restart what is dead, and a replica over several nodes as a whole; the guard restarts a lone rank that has ended.

    An engine that only does not answer is not restarted: the watch of its guard must find too that it makes no step.
    """
    known = [fleet.engine(journal, rank) for rank in active.ranks]
    if by_hand := next((engine.container for engine in known if engine and engine.by_hand), ""):
        return _give_up(journal, fleet, f"{by_hand}{BY_HAND}")
    dead = fleet.dead(journal, active)
    if (dead or _rests(journal, active, fleet)) and journal.restarts < RESTARTS:
        return None if journal.pauses(fleet.rested_s) else WriteJournal(journal.restarted(dead))
    return _give_up(journal, fleet, gateway.failed(active))


def failure(journal: Journal, swap: Swap, fleet: FleetState) -> str:
    """Return why the target has failed; empty if it has not, or while that is unknown."""
    failed = _failed_serving if swap.reached(Phase.SWITCH) else _failed_starting
    return failed(journal, swap, fleet)


def _failed_starting(journal: Journal, swap: Swap, fleet: FleetState) -> str:
    if why := _rank_failing(journal, swap, swap.coming.ranks, fleet):
        return why
    checked = proven(journal, swap, fleet) is Answer.YES
    if checked and fleet.gateway and fleet.gateway.answer(swap.proving) is Answer.NO:
        return fleet.gateway.failed(swap.proving, " through the gateway", retried=swap.retries)
    return ""


def _rank_failing(journal: Journal, swap: Swap, ranks: Iterable[RankSpec], fleet: FleetState) -> str:
    """Return which of these ranks has failed, as its guard reports of this start; empty if none has."""
    for rank in ranks:
        report = fleet.reports.get(rank.node)
        if report is None:
            continue
        engine = report.engine(rank.container)
        absent = engine.state is EngineState.ABSENT  # no start that the report could name
        if engine.refused and swap.retries:
            continue  # there is nothing better to start, and its guard retries
        if engine.problem and (report.follows(journal) if absent else engine.key == swap.key):
            return f"{rank.node}: {engine.problem}"
        if engine.key == swap.key and not engine.state.running:
            return f"{rank.node}: {rank.container} ended"
        if engine.proven_key == swap.key and engine.proven is Answer.NO:
            return f"{rank.node}: {rank.container} failed its checks"
    return ""


def _failed_serving(journal: Journal, swap: Swap, fleet: FleetState) -> str:
    """Return why the active release has failed: traffic leaves it only if it fails clients and the other one answers.

    It fails them too once a rank has ended before the promotion: another program answers on its port. After it, the
    watch may find garbage in what it answers.

    An in-place swap has stopped the other one, so until its promotion it returns without that answer, as does any swap
    whose old release has ended too: it is restarted. A first deploy has none. A return counts as failed until it gets
    the traffic, and beside the other release if that is promoted, has kept the traffic and answers, or has ended too.
    """
    gateway = fleet.gateway
    if gateway is None:
        return ""
    fails = gateway.answer(swap.proving) is Answer.NO
    if swap.retries:
        offline = swap.stops_source and gateway.active is None
        active = journal.active
        stays = active and gateway.serves(active) and gateway.answer(active) is Answer.YES
        ends = stays or offline or _both_end(journal, swap, fleet)
        return gateway.failed(swap.proving, retried=True) if fails and ends else ""
    lost = fleet.garbled(journal, swap.coming) if swap.reached(Phase.PROMOTE) else ended(journal, swap, fleet)
    if not fails and not lost:
        return ""
    starts = not swap.reached(Phase.PROMOTE) and (swap.stops_source or _both_end(journal, swap, fleet))
    first = swap.mode is Mode.FIRST and swap.phase is Phase.SWITCH
    other = not swap.stops_source and gateway.answer(swap.source) is Answer.YES
    return (lost or gateway.failed(swap.proving)) if starts or first or other else ""


def _both_end(journal: Journal, swap: Swap, fleet: FleetState) -> bool:
    """Return whether the old release has ended, and the other one, which has failed, does not answer any more."""
    silent = not swap.reverting or (fleet.gateway and fleet.gateway.answer(swap.source) is Answer.NO)
    return bool(silent) and _rests(journal, swap.target if swap.reverting else swap.source, fleet)


def _rests(journal: Journal, release: Deployment | None, fleet: FleetState) -> bool:
    """Return whether every replica has ended and only the leader restarts it: guards do so for lone promoted ones."""
    if release is None or (release == journal.active and release.alone):
        return False
    return all(fleet.all(journal, replica.ranks, RUNNING) is Answer.NO for replica in release.replicas)
