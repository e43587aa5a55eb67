"""Make room for an engine before it starts: drop page cache where it counts as used, and check what is free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sparkops.command import Command
from sparkops.commands import docker, guard, pages
from sparkops.config.recipe import Recipe
from sparkops.errors import CommandFailed, ConnectionLost, NodeError, NotReady
from sparkops.facts import host
from sparkops.facts.host import HostFacts
from sparkops.fleet import hands
from sparkops.fleet.hands import Hand
from sparkops.plan.deploy import Act, Step
from sparkops.plan.journal import Placed
from sparkops.plan.pools import counts_page_cache, pools

DROP_ALL = "sudo sh -c 'sync; echo 3 >/proc/sys/vm/drop_caches' on {node} drops the page cache of all files."


def take(hand: Hand, steps: Iterable[Step], recipe: Recipe) -> None:
    """Take the steps of a start. Raises NotReady where memory lacks, CommandFailed."""
    for step in steps:
        hand.say(step.title)
        if step.act is Act.MEMORY:
            require(hand, recipe)
        elif step.act is Act.DROP and step.command:
            drop(hand, step.command)
        elif step.command:
            hand.run(step.command)


def drop(hand: Hand, command: Command) -> None:
    """Drop page cache, and report what came of it: a start never fails for this alone.

    Past the lock, which is for changes, and on the node itself: behind the lock the guard runs what it is given.
    """
    try:
        hand.say(hand.member.node.run(command).stdout.strip())
    except (CommandFailed, ConnectionLost, NotReady) as error:
        hand.say(f"page cache not dropped: {error.problem}")


def require(hand: Hand, recipe: Recipe, back_gib: float = 0.0) -> None:
    """Raise NotReady unless the claim fits now. `back_gib` is what engines will free that stop before the start."""
    name, facts = hand.member.name, _facts(hand)
    for pool in pools(recipe, facts, dropped=True):
        given = replace(pool, available_gib=pool.available_gib + back_gib)
        if given.lack:
            after = f", with {back_gib:g} GiB that the old release gives back" if back_gib else ""
            cached = pool.available_gib < facts.memory_available_gib
            step = DROP_ALL.format(node=name) if cached else "Stop what uses the memory: sparkops status"
            raise NotReady(name, f"{given.lack}{after}", next_step=step)


def start_rank(hand: Hand, placed: Placed) -> None:
    """Start this node's rank of a stopped release again, in its own container, once there is memory for it.

    MemFree is not required: what ran before comes back rather than stays down for the page cache of other files.
    Raises NodeError where the memory does not come back.
    """
    name, recipe = hands.rank_here(hand, placed).container, Recipe.model_validate(placed.recipe)
    container = hand.container(name)
    if container is None:
        raise NodeError(hand.member.name, f"{name} is not there any more")
    if not container.running:
        keeper = hand.member.engine.container(guard.CONTAINER)
        if keeper and counts_page_cache(recipe, _facts(hand)):
            drop(hand, pages.drop_through(name, keeper["Image"], recipe))
        hands.memory_back(hand, recipe)
        hand.say(f"starting {name} again")
        hand.run(docker.start(name))


def _facts(hand: Hand) -> HostFacts:
    return host.parse(hand.member.node.run(host.FREE).stdout)
