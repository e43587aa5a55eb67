"""Handwritten faults of the swap machine, each with the rule that it breaks, and changes that make no difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A fault as a change of the source: `old` occurs once in the module."""

    rule: int
    what: str
    module: str
    old: str
    new: str


HANDWRITTEN = (
    Fault(1, "an intent planned on an older journal is accepted", "intents",
          "if intent.revision != journal.revision:", "if False:"),
    Fault(1, "the same intent counts twice", "intents",
          "if known := journal.outcome(intent.id):", "if False and (known := journal.outcome(intent.id)):"),
    Fault(2, "a release gets the traffic before it answers", "phases",
          "if to is not None and fleet.gateway.answer(to) is not Answer.YES:", "if False:"),
    Fault(2, "what nobody saw counts as at rest", "fleet_state",
          "return Answer.YES if len(known) == len(engines) else Answer.UNKNOWN", "return Answer.YES"),
    Fault(2, "a wait on unknown has no bound", "leader",
          "if passed_s < (bound_s if longest_s is None else longest_s):", "if True:"),
    Fault(2, "an engine that may have loaded is killed for memory", "follower",
          "if answer is Answer.NO]", "if answer is not Answer.YES]"),
    Fault(2, "an engine that may load counts as loaded", "follower",
          "EngineState.HEALTHY if loaded is Answer.YES", "EngineState.HEALTHY if loaded is not Answer.NO"),
    Fault(5, "an engine that loads is not killed for memory", "follower",
          "yield from dict.fromkeys([*loading, *(name for name in loaded if name in new)])",
          "yield from (name for name in loaded if name in new)"),
    Fault(5, "the engine that serves is killed for memory before one that loads", "follower",
          "yield from dict.fromkeys([*loading, *(name for name in loaded if name in new)])", "yield from loaded"),
    Fault(5, "a promoted release is killed for memory", "orders",
          "return iter(()) if new == journal.active else iter(new.less(swap.kept).ranks)",
          "return iter(new.less(swap.kept).ranks)"),
    Fault(5, "a replica that serves on is killed for memory", "orders",
          "iter(new.less(swap.kept).ranks)", "new.ranks"),
    Fault(3, "the boot record starts an engine whatever memory is free", "follower",
          "elif _fits(armed, local):", "else:"),
    Fault(3, "the boot record starts what an operator stopped", "follower",
          "container in down | local.paused | local.by_hand", "container in down | local.paused"),
    Fault(3, "a promotion ends before the boot record is written", "phases",
          "return Answer.YES if enough and fleet.replicated(journal) else Answer.NO", "return Answer.YES"),
    Fault(15, "a bake ends although a rank has ended", "phases",
          "if Answer.NO in running:", "if False:"),
    Fault(15, "a promotion ends although a rank has ended", "phases",
          "return armed and (len(replica.ranks) > 1 or", "return armed and (True or"),
    Fault(4, "a switch does not wait for another guard's copy", "phases",
          "return switch if fleet.replicated(journal) else Answer.UNKNOWN", "return switch"),
    Fault(4, "a leader that restarts asks no peer", "fleet_state",
          "return peers <= journal.without or bool(peers & self.contacts)", "return True"),
    Fault(4, "a leader goes on although a newer one exists", "fleet_state",
          "return any(report.kept > journal.position for report in self.reports.values())", "return False"),
    Fault(4, "a copy of an earlier leader's journal counts", "fleet_state",
          "report.kept >= journal.position", "report.revision >= journal.revision"),
    Fault(5, "what runs under an earlier leader's order counts", "fleet_state",
          "(self.term, self.adopted) >= journal.position", "self.adopted >= journal.revision"),
    Fault(5, "a guard follows a leader of an older term", "follower",
          "order.journal.position >= newest", "order.journal.revision >= newest[1]"),
    Fault(5, "a guard follows an order of an earlier boot", "follower", "order.boot == local.boot and ", ""),
    Fault(5, "a key starts a container whenever it does not run", "follower",
          "return key != rank.key and ", "return "),
    Fault(5, "a start that a crash prevented counts as one that ended", "follower",
          "return self.record.key(container) if happened else \"\"", "return self.record.key(container)"),
    Fault(5, "a start that Docker refuses is tried without end", "follower",
          "key = local.record.key(container) if container in local.problems else local.key(container)",
          "key = local.key(container)"),
    Fault(7, "a hold is accepted while nothing serves", "intents",
          "fleet.gateway.answer(traffic(journal)) is not Answer.YES:", "False:"),
    Fault(7, "a hold lets a swap continue that has not switched", "intents",
          'changed = journal.reverted("held") if stops else journal', "changed = journal"),
    Fault(8, "requests that nobody can count are drained", "phases",
          "return Answer.UNKNOWN if requests is None else Answer.YES", "return Answer.YES"),
    Fault(11, "a verdict on an earlier start counts", "phases", "proof.proven_key == swap.key", "True"),
    Fault(12, "rank 0 starts with the workers", "orders",
          "begins = Phase.WORKERS if rank in tuple(swap.coming.workers) else Phase.START", "begins = Phase.WORKERS"),
    Fault(12, "two engines load at once", "follower", "return not local.loading and ", "return "),
    Fault(12, "an engine starts before the one that it replaces is gone", "follower",
          "yield from _stop(rank, local)", "yield from _start(rank, local)\n            yield from _stop(rank, local)"),
    Fault(13, "a release that answers late has failed", "leader",
          "fails = gateway.answer(swap.proving) is Answer.NO",
          "fails = gateway.answer(swap.proving) is not Answer.YES"),
    Fault(19, "a slot is pointed only while no slot has the traffic", "leader",
          "if not gateway.has(deployment) and gateway.active is not deployment.slot:",
          "if not gateway.has(deployment) and gateway.active is None:"),
    Fault(19, "a change of the gateway that fails is no answer", "leader",
          "if effect != fleet.tried:", "if True:"),
    Fault(19, "a start that Docker refused is counted", "follower",
          "return replace(self, restarts=max(self.restarts - 1, 0))", "return self"),
    Fault(19, "a refused start of the old release has failed", "leader",
          "if engine.refused and swap.retries:", "if False:"),
    Fault(19, "an in-place swap stops the old release during a lease", "phases",
          "if ending or leased(swap.coming, fleet):", "if ending:"),
    Fault(20, "a release starts on a cordoned node", "phases",
          "for report in _before(target, fleet) if report.lease)", "for report in () if report.lease)"),
    Fault(19, "an engine that is about to end gets the traffic back", "journal",
          "if swap.stops_source and (swap.retries or swap.reached(Phase.FREE)):",
          "if swap.stops_source and (swap.retries or swap.reached(Phase.WORKERS)):"),
    Fault(19, "an operator is needed for ever", "leader",
          "if reached is Answer.LATER and journal.trouble and fleet.waited_s < longest_s:", "if False:"),
    Fault(19, "a deploy that nothing serves beside is reverted on unknown", "leader",
          "if swap is None or swap.source is None or journal.stopping:", "if swap is None or journal.stopping:"),
    Fault(9, "a new release takes the memory of a promoted engine", "follower",
          "return 0.0 if rank == local.record.armed else local.reserved_gib", "return 0.0"),
    Fault(19, "the old release waits for nodes that it does not need", "phases",
          "[rank for rank in ranks if rank.node in swap.coming.nodes]", "ranks"),
    Fault(19, "a promoted container that was removed is not created", "follower",
          "if state is EngineState.ABSENT:", "if False:"),
    Fault(23, "a replica is withdrawn although too few others serve", "phases",
          "Answer.YES if answers.count(Answer.YES) >= least else Answer.NO", "Answer.YES"),
    Fault(23, "a new replica gets requests before it answers", "phases",
          "return gateway.answer(swap.proving) if swap.coming.replicas else Answer.YES", "return Answer.YES"),
    Fault(3, "a replica stops with requests in progress", "phases",
          "requests = gateway.requests_left(rest) if rest else gateway.requests(source)",
          "requests = 0 if rest else gateway.requests(source)"),
    Fault(23, "replicas that serve on are stopped", "orders",
          "for rank in swap.leaving.on(node) if swap.leaving and not swap.restarts else ():",
          "for rank in swap.source.on(node) if swap.source and not swap.restarts else ():"),
    Fault(23, "a rolling update ends after its first step", "journal",
          "return self._next_step(swap) if swap.goal else self.settled(swap.why)", "return self.settled(swap.why)"),
    Fault(24, "a replica that only the leader restarts stays down", "leader",
          "return rests or bool(fleet.dead(journal, replica) or fleet.garbled(journal, replica))", "return False"),
    Fault(24, "a return of a replica has no end", "leader",
          "if swap := _served_by_others(journal):", "if False and (swap := _served_by_others(journal)):"),
    Fault(14, "a deploy to a node that the leader does not reach is accepted", "intents",
          "if missing else", "if False else"),
)  # fmt: skip
"""Rules 6, 9 and 10 are absent, because the guards keep them: how they are replaced, their files, their messages."""

EXCLUSIVE = "the two conditions exclude each other"
OF_SOURCE = "replicas are kept of a source only"
WHOLE = "the part without no replica has the ranks of the whole"
UNORDERED = "a guard stops every container before it starts one, in whatever order they are listed"
EQUIVALENT: Mapping[str, str] = {
    "follower._effects: `for rank in order.ranks: yield from ` before `for rank in order.ranks: yield from ` (3)": (
        "a start and a proof concern different engines, and a node has no other order between them"
    ),
    "orders._ranks: `for rank in journal.stopped: if rank` before `if swap: for rank in swap.coming.on(`": UNORDERED,
    "orders._ranks: `for rank in swap.leaving.on(node) if` before `for rank in swap.coming.on(node): yi`": UNORDERED,
    "orders._target: `if swap.reached(Phase.SWITCH): retur` before `if swap.phase is Phase.FREE: return `": EXCLUSIVE,
    "journal.Journal.reverted: `if swap.source is None and swap.reac` before `if ended and swap.reached(Phase.SWIT`": (
        EXCLUSIVE
    ),
    "journal.Journal.reverted: `if swap.keeps_source or (swap.retrie` before `if swap.source is None and swap.reac`": (
        EXCLUSIVE
    ),
    "journal.Journal.reverted: `if self.restarts >= RESTARTS: if swa` before `if swap.source is None and swap.reac`": (
        "a swap that goes forward has the whole budget"
    ),
    "journal.Journal.reverted: `if self.restarts >= RESTARTS: if swa` before `if swap.keeps_source or (swap.retrie`": (
        "a swap that stops nothing has the whole budget"
    ),
    "leader._due: `if journal.stopping: return _stop(jo` before `if (unset := _unset(journal, fleet))`": (
        "while a service stops, its slots make no difference"
    ),
    "leader._due: `if journal.restarts and fleet.rested` before `if (unset := _unset(journal, fleet))`": (
        "the budget of restarts and the slots of the gateway do not depend on each other"
    ),
    "leader._due: `if journal.restarts and fleet.rested` before `if journal.stopping: return _stop(jo`": (
        "a stopped service forgets its restarts"
    ),
    "leader._continue: `if reached is Answer.YES: return Wri` before `if not isinstance(reached, Answer): `": (
        EXCLUSIVE
    ),
    "leader._give_up: `if (silent := _left_out(journal, lam` before `if (swap := _served_by_others(journa`": EXCLUSIVE,
    "leader._idle: `if (back := {node for node in journa` before `if gone: return WriteJournal(journal`": (
        "two changes of the journal that do not depend on each other"
    ),
    "intents._forget: `if journal.deployments: return Refus` before `if journal.forgotten: return Nothing`": (
        "a deploy ends that a service is forgotten"
    ),
    "journal.Swap.phases: `if self.retries: skipped |= {Phase.P` before `if not self.coming.replicas: skipped`": (
        "both add phases to one set"
    ),
    "journal.Journal._begun: without `source`": "a rolling update without a promoted release is refused",
    "journal.Swap.coming: always `self.kept`": WHOLE,
    "journal.Swap.leaving: without `self.kept`": WHOLE,
    "journal.Swap.leaving: without `self.source`": OF_SOURCE,
    "journal.Swap.rest: without `whole`": OF_SOURCE,
    "phases._runs: without `fleet.gateway`": "`share` waits for a gateway that is unknown",
    "phases.proven: without `proof`": (
        "the answer is unknown before, where a proof is missing"
    ),
}  # fmt: skip
"""By change: why no run of the machine can tell it from the original."""
