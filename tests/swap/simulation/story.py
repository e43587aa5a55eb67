"""A scripted run: go to a phase, let something happen, see the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sparkops.names import Slot
from sparkops.swap.intents import Deploy, Intent, accept
from sparkops.swap.journal import Journal
from sparkops.swap.model import Mode, Phase
from tests.swap.simulation import laws
from tests.swap.simulation.faults import faults, relief
from tests.swap.simulation.scenarios import ask, deploying, deployment, operators, rebuild
from tests.swap.simulation.states import canonical
from tests.swap.simulation.transitions import following
from tests.swap.simulation.views import Health
from tests.swap.simulation.world import Transition, World

C = deployment("c", Slot.BLUE, "n3")


@dataclass
class Story:
    """A world that changes. Every law is checked at each step."""

    world: World

    @classmethod
    def of(cls, mode: str, *, automatic: bool = True, turns: str = "good") -> Story:
        """The deploy of this mode has just been accepted."""
        return cls(deploying(mode, automatic=automatic, turns=turns))

    @property
    def journal(self) -> Journal:
        return self.world.leader.journal

    @property
    def running(self) -> list[str]:
        """Containers that run, on nodes that are there."""
        return sorted(
            engine.container for machine, engine in self.world.engines() if engine.running and not machine.lost
        )

    @property
    def armed(self) -> list[str]:
        """What the boot records name."""
        return [machine.record.armed.container for machine in self.world.machines if machine.record.armed]

    def step(self) -> bool:
        """Take the next transition of the fair schedule; False at the end."""
        transition = following(self.world)
        if transition is not None:
            self._become(transition)
        return transition is not None

    def until(self, phase: Phase) -> Story:
        """Run until the swap enters a phase."""
        while not (self.journal.swap and self.journal.swap.phase is phase):
            assert self.step(), f"no phase {phase}"
        return self

    def copied(self) -> Story:
        """Go on until every other guard has a copy of the journal."""
        while not all(machine.record.copy == self.journal for machine in self.world.machines[1:]):
            assert self.step()
        return self

    def settle(self) -> Story:
        """Run to the end, which must be one that the laws allow."""
        while self.step():
            pass
        assert laws.settled(self.world) == []
        return self

    def fault(self, label: str) -> Story:
        """Let a fault happen, by its label."""
        self._become(_named(label, list(faults(self.world))))
        return self

    def operator(self, label: str) -> Story:
        """Let an operator ask for something, by its label."""
        self._become(_named(f"operator: {label}", list(operators(self.world))))
        return self

    def ask(self, make: Callable[[str, int], Intent]) -> bool:
        """Send an intent that was planned on what is; whether it was accepted."""
        after = ask(self.world, make)
        if after is not None:
            self._become(("intent", after))
        return after is not None

    def reply(self, intent: Intent) -> object:
        """What an intent would get, without sending it."""
        return accept(self.journal, intent, self.world.fleet(self.world.leader))

    def deploy(self, mode: Mode, *nodes: str, slot: Slot = Slot.BLUE, without: frozenset[str] = frozenset()) -> bool:
        """Ask for a third release."""
        target = replace(deployment("c", slot, *nodes))
        return self.ask(lambda name, revision: Deploy(name, revision, target, mode, without=without))

    def rebuild(self) -> Story:
        """The operator rebuilds the gateway on another node."""
        transition = rebuild(self.world)
        assert transition is not None
        self._become(transition)
        return self

    def become(self, container: str, health: Health) -> Story:
        """An engine changes by itself."""
        machine = next(machine for machine, engine in self.world.engines() if engine.container == container)
        changed = machine.holding(replace(machine.existing(container), health=health))
        self._become((f"{container} is {health}", replace(self.world.with_machine(changed), touched=True)))
        return self

    def hang(self, container: str) -> Story:
        """An engine hangs, and does so after each start."""
        machine = next(machine for machine, engine in self.world.engines() if engine.container == container)
        hung = replace(machine.existing(container), health=Health.HUNG, turns=Health.HUNG, broken=True)
        self._become((f"{container} hangs", replace(self.world.with_machine(machine.holding(hung)), touched=True)))
        return self

    def rest(self) -> Story:
        """An hour passes without a restart."""
        self._become(("an hour passes", self.world.with_leader(replace(self.world.leader, rested=True))))
        return self

    def stop_by_hand(self, container: str) -> Story:
        """`docker stop` on the node."""
        machine = next(machine for machine, engine in self.world.engines() if engine.container == container)
        stopped = replace(machine.existing(container), health=Health.STOPPED, by_hand=True)
        self._become(("docker stop", replace(self.world.with_machine(machine.holding(stopped)), touched=True)))
        return self

    def relieve(self, node: str) -> str:
        """Memory of a node falls below the floor. Returns the engine that its guard kills; empty for none."""
        killed = relief(self.world.machine(node))
        if killed:
            self.fault(f"memory of {node} runs out: {killed} is killed")
        return killed

    def _become(self, transition: Transition) -> None:
        self.world = canonical(transition[1])
        assert [*self.world.wrongs, *laws.standing(self.world)] == [], transition[0]


def _named(label: str, transitions: list[Transition]) -> Transition:
    named = [transition for transition in transitions if transition[0] == label]
    assert named, f"no {label!r} among {[name for name, _ in transitions]}"
    return named[0]
