"""A trace in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sparkops.names import Slot
from sparkops.swap.events import narrate
from sparkops.swap.intents import Cancel, Deploy, Intent, Promote, Stop
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode
from tests.swap.conformance.projection import Observed, Recording, Snapshot, names_of
from tests.swap.conformance.traces import Act, Ask, KillEngine, KillGuard, Role, StopByHand, Trace
from tests.swap.simulation.faults import faults
from tests.swap.simulation.scenarios import ask, deployment, settle
from tests.swap.simulation.sharing import replace
from tests.swap.simulation.transitions import following
from tests.swap.simulation.views import Health
from tests.swap.simulation.world import Gateway, Leader, Machine, World

NODES = {"n1": "n1", "n2": "n2"}
VERBS: Mapping[str, Callable[[str, int], Intent]] = {
    "cancel": Cancel,
    "promote": Promote,
    "stop": lambda id_, revision: Stop(id_, revision, force=True),
}
ENGINES = {Role.OLD: "a-r0", Role.NEW: "b-r0"}


def releases(trace: Trace) -> tuple[Deployment, Deployment]:
    """The old and the new release."""
    claim = 1.0 if trace.mode is Mode.BESIDE else 2.0
    turns = Health.GOOD if trace.answers else Health.WRONG
    old = deployment("a", Slot.BLUE, "n2", claim=claim)
    return old, deployment("b", Slot.GREEN, trace.node, claim=claim, turns=turns)


@dataclass
class Play:
    """A run of a trace."""

    trace: Trace
    world: World
    journals: list[Journal] = field(default_factory=list)
    recording: Recording = field(default_factory=Recording)

    @classmethod
    def of(cls, trace: Trace) -> Play:
        """The old release serves, and nothing is in progress."""
        old, _ = releases(trace)
        leader = Leader(Journal("chat", "n1", ("n2",)))
        world = settle(World((Machine("n1"), Machine("n2")), (leader,), Gateway("n1")))
        begun = ask(world, lambda name, revision: Deploy(name, revision, old, Mode.FIRST))
        assert begun is not None
        play = cls(trace, settle(begun))
        play.journals.append(play.journal)
        play._become(play.world)
        return play

    @property
    def journal(self) -> Journal:
        return self.world.leader.journal

    def run(self) -> Play:
        """Send the intent, act at each moment, and run to the end."""
        _, new = releases(self.trace)
        mode, automatic = self.trace.mode, self.trace.automatic
        self._ask(lambda name, revision: Deploy(name, revision, new, mode, automatic=automatic))
        for phase, act in self.trace.acts:
            while not (self.journal.swap and self.journal.swap.phase is phase):
                assert self._step(), f"{self.trace}: no phase {phase}"
            self._act(act)
        while self._step():
            pass
        return self

    @property
    def observed(self) -> Observed:
        return self.recording.observed(names_of(self.journals, NODES))

    def _step(self) -> bool:
        transition = following(self.world)
        if transition is not None:
            self._become(transition[1])
        return transition is not None

    def _become(self, world: World) -> None:
        old, self.world = self.journals[-1], world
        if self.journal != old:
            self.recording.events += [event.record() for event in narrate(old, self.journal)]
            self.journals.append(self.journal)
        leader = world.leader
        reports = {report.node: report for report in leader.reports}
        self.recording.snapshots.append(Snapshot(reports, world.view(leader)))

    def _act(self, act: Act) -> None:
        match act:
            case KillGuard(node=node):
                self._fault(f"crash of the guard on {node}")
            case KillEngine(role=role):
                self._fault(f"{ENGINES[role]} is {Health.STOPPED}")
            case StopByHand(role=role):
                machine = next(machine for machine in self.world.machines if machine.engine(ENGINES[role]))
                stopped = replace(machine.existing(ENGINES[role]), health=Health.STOPPED, by_hand=True)
                self._become(self.world.with_machine(machine.holding(stopped)))
            case Ask(verb=verb):
                self._ask(lambda name, revision: self._intent(verb, name, revision))

    def _fault(self, label: str) -> None:
        [after] = [world for name, world in faults(self.world) if name == label]
        self._become(after)

    def _ask(self, make: Callable[[str, int], Intent]) -> None:
        after = ask(self.world, make)
        assert after is not None, f"{self.trace}: the intent is refused"
        self._become(after)

    def _intent(self, verb: str, name: str, revision: int) -> Intent:
        if verb == "rollback":
            warm, _ = releases(self.trace)
            mode = Mode.ACROSS if self.trace.mode is Mode.ACROSS else Mode.BESIDE
            return Deploy(name, revision, warm, mode)
        return VERBS[verb](name, revision)
