"""The acts of a swap's phases. Each looks before it acts; each returns how many requests it had to cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sparkops.commands import docker, pages
from sparkops.config.recipe import Recipe
from sparkops.errors import NodeError, ProbeFailed, SparkopsError, StartFailed
from sparkops.facts import docker as docker_facts
from sparkops.fleet import hands, pair, probing, room, traffic, watch
from sparkops.fleet.hands import Hand
from sparkops.fleet.keep import Keep
from sparkops.fleet.progress import Event
from sparkops.fleet.revert import HandOf
from sparkops.plan.deploy import Observed, start_steps
from sparkops.plan.journal import Mode, Phase, Placed
from sparkops.plan.pools import counts_page_cache
from sparkops.plan.swap import SwapPlan
from sparkops.release import Rank

BAKE_LOOK_S = 1.0
BAKE_ASK_S = 10.0


@dataclass(frozen=True)
class Round:
    """What the phases of one swap work with. `hand_of` gives a hand on a node; `observed` is by node.

    `generation` is new with each run of a deploy, and tells its ranks from those of an earlier one.
    """

    plan: SwapPlan
    green: Placed
    observed: Mapping[str, Observed]
    hand_of: HandOf
    gateway: Hand
    keep: Keep
    generation: str = ""

    @property
    def service(self) -> str:
        return self.plan.release.service

    @property
    def recipe(self) -> Recipe:
        return self.plan.release.recipe

    @property
    def here(self) -> Hand:
        """The hand on the node of green's rank 0."""
        return self.hand_of(self.green.node)

    @property
    def blue(self) -> Placed:
        """What is replaced. Only modes that have a blue ask."""
        if self.plan.blue is None:
            raise SparkopsError(f"mode {self.plan.mode} without a release to replace")
        return self.plan.blue

    def stop(self, placed: Placed) -> None:
        """Stop every rank of a release in the reverse order of its start: rank 0 has requests to finish."""
        for node in placed.nodes:
            hands.stop_rank(self.hand_of(node), placed)


def arm(this: Round) -> int:
    """The journal with its deadline arms the guards, and it is written. What is still warm makes room."""
    if this.plan.warm:
        this.stop(this.plan.warm)
    if this.plan.mode is Mode.IN_PLACE:
        _fits_without_blue(this)
    return 0


def _fits_without_blue(this: Round) -> None:
    """Refuse what would fail for page cache, while blue still serves. Raises NotReady."""
    claim_gib = Recipe.model_validate(this.blue.recipe).memory.claim_gib
    for rank in this.plan.ranks:
        if _drop_blue(this, rank):
            room.drop(this.hand_of(rank.node), pages.drop(this.recipe, this.observed[rank.node].config))
            room.require(this.hand_of(rank.node), this.recipe, claim_gib if this.blue.on(rank.node) else 0.0)


def _drop_blue(this: Round, rank: Rank) -> bool:
    """Drop the page cache of blue's files and return True, where the page cache counts."""
    if not counts_page_cache(this.recipe, this.observed[rank.node].host):
        return False
    blue = Recipe.model_validate(this.blue.recipe)
    room.drop(this.hand_of(rank.node), pages.drop(blue, this.observed[rank.node].config))
    return True


def quiesce(this: Round) -> int:
    """Nobody gets the traffic, and what is under way in blue ends."""
    this.gateway.say(f"{this.service} goes down {this.plan.down_for}")
    traffic.give_traffic(this.gateway, this.service, None)
    return traffic.drained(this.gateway, this.service, this.blue, this.recipe.swap.drain_s)


def free(this: Round) -> int:
    """Blue stops and gives its memory back."""
    this.stop(this.blue)
    for rank in this.plan.ranks:
        _drop_blue(this, rank)
        hands.memory_back(this.hand_of(rank.node), this.recipe)
    return 0


def start(this: Round) -> int:
    """Create and start green, unless it runs already."""
    if len(this.plan.ranks) > 1:
        pair.start(this.plan, this.observed, this.hand_of, this.generation)
        return 0
    member, rank = this.here.member, this.plan.rank
    now = tuple(docker_facts.parse(member.name, each) for each in member.engine.containers())
    room.take(this.here, start_steps(rank, replace(this.observed[rank.node], containers=now)), this.recipe)
    return 0


def load(this: Round) -> int:
    """Watch the start, and that every rank lives meanwhile."""
    workers = [(this.hand_of(each.node).member, each.container) for each in this.green.workers]
    watch.until_healthy(this.here.member, watch.Start.of(this.plan.rank), this.here.tell, this.keep, workers)
    return 0


def verify(this: Round) -> int:
    """The whole smoke suite, as often as the recipe says. The gateway is told where green is, without traffic."""
    traffic.point(this.gateway, this.service, this.green)
    pair.require_promised_network(this.green, this.hand_of)
    where = (this.here.member, this.green.container, this.green.port)
    traffic.preview(this.gateway, this.service, this.green)
    probing.prove(*where, this.recipe, this.keep, this.here.tell)
    return 0


def switch(this: Round) -> int:
    """The commit point."""
    traffic.give_traffic(this.gateway, this.service, this.green)
    return 0


def bake(this: Round) -> int:
    """Watch green with the traffic: that it lives, that no answer breaks off, that it still answers rightly.

    It must do so at the end as well: where the network between two ranks is cut, requests hang, and nothing breaks off.
    """
    end, ask_at = time.monotonic() + this.recipe.swap.bake_s, time.monotonic()
    before = _broken(this)
    while (left := end - time.monotonic()) > 0:
        _see_green_whole(this, before)
        if time.monotonic() >= ask_at:
            ask_at = time.monotonic() + BAKE_ASK_S
            _ask_green(this)
        this.here.tell(Event(this.green.node, f"baking, {left:.0f} s left", lasting=False))
        this.here.pause(min(BAKE_LOOK_S, left))
    if this.recipe.swap.bake_s:
        _see_green_whole(this, before)
        _ask_green(this)
    return 0


def _ask_green(this: Round) -> None:
    report = hands.light_pass(this.here, this.green, warm=True)
    if not report.ok:
        raise ProbeFailed(this.green.node, f"green answers wrongly with the traffic: {report.failure}")


def _see_green_whole(this: Round, before: int) -> None:
    _see_green_alive(this)
    if (now := _broken(this)) > before:
        raise NodeError(this.green.node, f"{now - before} answers of green broke off with the traffic")


def _see_green_alive(this: Round) -> None:
    for place in this.green.ranks:
        container = this.hand_of(place.node).container(place.container)
        if container is None or not container.running or container.restarts:
            raise StartFailed(place.node, f"{place.container} died with the traffic")


def _broken(this: Round) -> int:
    return traffic.of(this.gateway, this.service).slots[this.plan.rank.slot].errors


def promote(this: Round) -> int:
    """Only one of them may start by itself after a reboot: first blue loses the policy, then green gets it."""
    for place in this.plan.blue.ranks if this.plan.blue else ():
        hands.disarm(this.hand_of(place.node), place.container)
    for place in this.green.ranks:
        this.hand_of(place.node).run(docker.keep_running(place.container))
    return 0


def drain(this: Round) -> int:
    """What is under way in blue ends. That may take long, and until then blue is there if green dies."""
    swap = this.recipe.swap
    return traffic.drained(this.gateway, this.service, this.blue, swap.drain_s, lambda: _see_green_alive(this))


def retire(this: Round) -> int:
    """Blue stops now, or stays warm for a rollback until the guard stops it. Nobody else can answer if green cannot."""
    _see_green_alive(this)
    if not this.recipe.swap.keep_blue_s:
        _ask_green(this)
        this.stop(this.blue)
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
