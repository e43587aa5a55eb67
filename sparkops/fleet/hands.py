"""What a swap does to one node. A deploy and the guard use the same hands: a revert is the same whoever does it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from requests import Session

from sparkops.command import Command, Completed
from sparkops.commands import docker
from sparkops.config.recipe import Recipe
from sparkops.errors import CommandFailed, Interrupted, NodeError, SparkopsError
from sparkops.facts import advice, host
from sparkops.facts import docker as docker_facts
from sparkops.facts.docker import Container
from sparkops.fleet import probing, smoke, watch
from sparkops.fleet.connected import Member
from sparkops.fleet.probing import Probing
from sparkops.fleet.progress import Event, Tell
from sparkops.fleet.smoke import Server
from sparkops.nodes.http import direct, session
from sparkops.plan.coverage import light
from sparkops.plan.journal import Place, Placed
from sparkops.plan.pools import pools
from sparkops.plan.smoke import Report
from sparkops.probes import openai

POLL_S = 0.25
WORKER_GRACE_S = 3


@dataclass(frozen=True)
class Hand:
    """Acts on one node. `do` changes it: fenced by the lock in a deploy, under the lock in the guard."""

    member: Member
    do: Callable[[Command], Completed]
    tell: Tell

    def run(self, command: Command) -> Completed:
        """Run a command that changes the node. Raises CommandFailed, with the likely cause of an error of Docker."""
        try:
            return self.do(command)
        except CommandFailed as error:
            cause, step = advice.of_docker(error.completed.last_lines) or ("", "")
            raise CommandFailed(error.completed, cause=cause, next_step=step) from error

    def say(self, text: str) -> None:
        """Tell what happens on this node."""
        self.tell(Event(self.member.name, text))

    def container(self, name: str) -> Container | None:
        """A container as it is now."""
        inspect = self.member.engine.container(name)
        return None if inspect is None else docker_facts.parse(self.member.name, inspect)

    def pause(self, seconds: float) -> None:
        """Wait, unless the operator interrupts. Raises Interrupted."""
        if self.member.node.cancel.wait(seconds):
            raise Interrupted("interrupted")

    def lack(self, recipe: Recipe) -> str:
        """What an engine lacks of memory now, with the arithmetic; empty where it may start."""
        facts = host.parse(self.member.node.run(host.FREE).stdout)
        return "; ".join(pool.lack for pool in pools(recipe, facts) if pool.lack)


def disarm(hand: Hand, name: str) -> None:
    """Let a container not start by itself any more; what runs goes on."""
    container = hand.container(name)
    if container is not None and container.restart_policy != "no":
        hand.run(docker.stay_stopped(name))


def arm(hand: Hand, name: str) -> None:
    """Let a container start by itself again."""
    container = hand.container(name)
    if container is not None and container.restart_policy == "no":
        hand.run(docker.keep_running(name))


def stop_engine(hand: Hand, name: str, grace_s: int) -> None:
    """Stop a container for good, and see that it has ended. Nothing to do where it does not run."""
    disarm(hand, name)
    container = hand.container(name)
    if container is None or not container.running:
        return
    hand.say(f"stopping {name}")
    try:
        hand.run(docker.stop(name, grace_s))
    except CommandFailed:  # what counts is what inspect says
        hand.say(f"docker stop failed for {name}")
    after = hand.container(name)
    if after is not None and after.running:
        raise NodeError(hand.member.name, f"{name} still runs after docker stop", next_step=f"docker kill {name}")


def stop_rank(hand: Hand, placed: Placed) -> None:
    """Stop this node's rank of a release, with the grace period of its recipe.

    Above rank 0 nothing is to be finished, and Ray would take 30 s to end (measured).
    """
    place, recipe = rank_here(hand, placed), Recipe.model_validate(placed.recipe)
    head = place == placed.ranks[0]
    stop_engine(hand, place.container, recipe.serve.stop_grace_s if head else WORKER_GRACE_S)


def memory_back(hand: Hand, recipe: Recipe) -> None:
    """Wait until the recipe's engine fits, twice in a row. Raises NodeError after `swap.memory_return_s`."""
    end, seen = time.monotonic() + recipe.swap.memory_return_s, 0
    while True:
        lack = hand.lack(recipe)
        seen = seen + 1 if not lack else 0
        if seen == 2:
            return
        hand.tell(Event(hand.member.name, f"waiting for memory: {lack or 'enough, once'}", lasting=False))
        if time.monotonic() > end:
            problem = f"the memory did not come back: {lack or 'it was enough only once'}"
            step = f"See what holds it (docker ps, nvidia-smi); a reboot of {hand.member.name} gives it back."
            raise NodeError(hand.member.name, problem, next_step=step)
        hand.pause(POLL_S)


def believe(hand: Hand, placed: Placed) -> None:
    """Wait until a release that was started again answers rightly: one light pass. `hand` is on rank 0's node."""
    recipe = Recipe.model_validate(placed.recipe)
    start = watch.Start(placed.node, placed.container, placed.port, placed.release, recipe)
    watch.until_healthy(hand.member, start, hand.tell)
    report = light_pass(hand, placed)
    if not report.ok:
        raise NodeError(hand.member.name, f"{placed.container} does not answer rightly: {report.failure}")


def rank_here(hand: Hand, placed: Placed) -> Place:
    """This node's rank of a release. Raises NodeError where it has none."""
    place = placed.on(hand.member.name)
    if place is None:
        raise NodeError(hand.member.name, f"no rank of {placed.release} is here")
    return place


def light_pass(hand: Hand, placed: Placed, *, warm: bool = False) -> Report:
    """One pass of the checks that take no time: health and the questions with known answers.

    An engine that is `warm` compiles nothing any more: it has failed as soon as it has made no step for too long.
    """
    recipe = light(Recipe.model_validate(placed.recipe))
    how = Probing(recipe, passes=1, alone=False, stall_s=recipe.swap.stall_s if warm else None)
    if placed.node == hand.member.name:
        return probing.probe(hand.member, placed.container, placed.port, how)
    server = Server(
        lambda: _way_to(hand, placed), recipe, alone=how.alone, cancel=hand.member.node.cancel, stall_s=how.stall_s
    )
    return smoke.run(server, passes=how.passes)


def is_right(hand: Hand, placed: Placed) -> bool:
    """Whether a release that is warm answers rightly; what cannot even be asked does not. Raises Interrupted."""
    try:
        return light_pass(hand, placed, warm=True).ok
    except Interrupted:
        raise
    except SparkopsError as error:
        hand.say(str(error))
        return False


def answers(hand: Hand, placed: Placed) -> bool:
    """Whether a release listens, wherever it runs."""
    with _way_to(hand, placed) as asking:
        return openai.healthy(asking)


def _way_to(hand: Hand, placed: Placed) -> Session:
    """A session that reaches a release. On another node it is asked directly: a guard has no SSH."""
    if placed.node == hand.member.name:
        return session(hand.member.node, placed.port)
    return direct(placed.address, placed.port)


def as_json(placed: Placed | None) -> Any:
    """For the history: a release without its recipe."""
    return placed.model_dump(mode="json", exclude={"recipe"}) if placed else None
