"""The acts of a swap's phases. Each looks before it acts; each returns how many requests it had to cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sparkops.commands import docker
from sparkops.config.recipe import Recipe
from sparkops.errors import NodeError, SparkopsError, StartFailed
from sparkops.facts import docker as docker_facts
from sparkops.fleet import hands, probing, watch
from sparkops.fleet.hands import Hand
from sparkops.fleet.keep import Keep
from sparkops.fleet.progress import Event
from sparkops.plan.deploy import Observed, start_steps
from sparkops.plan.journal import Phase, Placed
from sparkops.plan.swap import SwapPlan

BAKE_LOOK_S = 1.0
BAKE_ASK_S = 20.0


@dataclass(frozen=True)
class Round:
    """What the phases of one swap work with: hands on the gateway's node, on green's (here) and blue's (there)."""

    plan: SwapPlan
    green: Placed
    observed: Observed
    gateway: Hand
    here: Hand
    there: Hand | None
    keep: Keep
    warm: Hand | None = None

    @property
    def service(self) -> str:
        return self.plan.release.service

    @property
    def recipe(self) -> Recipe:
        return self.plan.release.recipe

    def blue(self) -> tuple[Placed, Hand]:
        """Blue and the hand on its node. Only modes that have a blue ask."""
        if self.plan.blue is None or self.there is None:
            raise SparkopsError(f"mode {self.plan.mode} without a release to replace")
        return self.plan.blue, self.there


def arm(this: Round) -> int:
    """The journal with its deadline arms the guards, and it is written. What is still warm makes room."""
    if this.plan.warm and this.warm:
        stop(this.warm, this.plan.warm)
    return 0


def stop(hand: Hand, placed: Placed) -> None:
    """Stop a release with the grace period of its own recipe."""
    hands.stop_engine(hand, placed.container, Recipe.model_validate(placed.recipe).serve.stop_grace_s)


def quiesce(this: Round) -> int:
    """Nobody gets the traffic, and what is under way in blue ends."""
    blue, _ = this.blue()
    this.gateway.say(f"{this.service} goes down {this.plan.down_for}")
    hands.give_traffic(this.gateway, this.service, None)
    return hands.drained(this.gateway, this.service, blue, this.recipe.swap.drain_s)


def free(this: Round) -> int:
    """Blue stops and gives its memory back."""
    blue, hand = this.blue()
    stop(hand, blue)
    hands.memory_back(hand, this.recipe.memory.claim_gib, this.recipe.swap.memory_return_s)
    return 0


def start(this: Round) -> int:
    """Create and start green, unless it runs already."""
    member = this.here.member
    now = tuple(docker_facts.parse(member.name, each) for each in member.engine.containers())
    for step in start_steps(this.plan.rank, replace(this.observed, containers=now)):
        if step.command:
            this.here.say(step.title)
            this.here.run(step.command)
    return 0


def load(this: Round) -> int:
    """Watch the start."""
    watch.until_healthy(this.here.member, watch.Start.of(this.plan.rank), this.here.tell, this.keep)
    return 0


def verify(this: Round) -> int:
    """The whole smoke suite, as often as the recipe says. The gateway is told where green is, without traffic."""
    hands.point(this.gateway, this.service, this.green)
    where = (this.here.member, this.green.container, this.green.port)
    probing.prove(*where, this.recipe, this.keep, this.here.tell)
    return 0


def switch(this: Round) -> int:
    """The commit point."""
    hands.give_traffic(this.gateway, this.service, this.green)
    return 0


def bake(this: Round) -> int:
    """Watch green with the traffic: that it lives, that no answer breaks off, that it still answers rightly."""
    end, ask_at = time.monotonic() + this.recipe.swap.bake_s, time.monotonic()
    before = _broken(this)
    while (left := end - time.monotonic()) > 0:
        _look_at_green(this, before)
        if time.monotonic() >= ask_at:
            ask_at = time.monotonic() + BAKE_ASK_S
            report = hands.light_pass(this.here, this.green)
            if not report.ok:
                raise NodeError(this.green.node, f"green answers wrongly with the traffic: {report.failure}")
        this.here.tell(Event(this.green.node, f"baking, {left:.0f} s left", lasting=False))
        this.here.pause(min(BAKE_LOOK_S, left))
    return 0


def _look_at_green(this: Round, before: int) -> None:
    container = this.here.container(this.green.container)
    if container is None or not container.running or container.restarts:
        raise StartFailed(this.green.node, f"{this.green.container} died with the traffic")
    if (now := _broken(this)) > before:
        raise NodeError(this.green.node, f"{now - before} answers of green broke off with the traffic")


def _broken(this: Round) -> int:
    return hands.gateway_facts_of(this.gateway, this.service).slots[this.plan.rank.slot].errors


def promote(this: Round) -> int:
    """Only one of them may start by itself after a reboot: first blue loses the policy, then green gets it."""
    if this.plan.blue and this.there:
        container = this.there.container(this.plan.blue.container)
        if container and container.restart_policy != "no":
            this.there.run(docker.stay_stopped(container.name))
    this.here.run(docker.keep_running(this.green.container))
    return 0


def drain(this: Round) -> int:
    """What is under way in blue ends."""
    blue, _ = this.blue()
    return hands.drained(this.gateway, this.service, blue, this.recipe.swap.drain_s)


def retire(this: Round) -> int:
    """Blue stops now, or stays warm for a rollback until the guard stops it."""
    blue, hand = this.blue()
    if not this.recipe.swap.keep_blue_s:
        stop(hand, blue)
    return 0


ACTS: Mapping[Phase, Callable[[Round], int]] = {
    Phase.ARM: arm,
    Phase.QUIESCE: quiesce,
    Phase.FREE: free,
    Phase.START: start,
    Phase.LOAD: load,
    Phase.VERIFY: verify,
    Phase.SWITCH: switch,
    Phase.BAKE: bake,
    Phase.PROMOTE: promote,
    Phase.DRAIN: drain,
    Phase.RETIRE: retire,
}
