"""A node is lost in the middle of a swap over two nodes, or all nodes lose their power: a release serves again.

The engine is the stand-in. Each test prints a line with its figures (`pytest -s`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pytest
import requests

from sparkops.node.docker.facts import Container
from sparkops.operator.demo.traffic.generator import Traffic
from sparkops.operator.demo.traffic.report import RequestRecord
from sparkops.swap.intents import Deploy
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, Phase
from tests.fleet.fleet import Fleet
from tests.fleet.node import FleetNode
from tests.fleet.shell import FleetError, docker
from tests.real import pairs
from tests.real.cases import Moment, some
from tests.real.endings import answers, at, awaited, good_end, looking
from tests.real.program import Cli
from tests.real.service import GATEWAY, PATIENCE_S, Service, journal_in, unused, wait_for, write_inventory

pytestmark = pytest.mark.fleet

AWAY = "node-2"
BOTH = pairs.on((GATEWAY, AWAY))
IN_PLACE = ("--mode", Mode.IN_PLACE, "--allow-downtime")
PAIR = {"serve__tensor_parallel": "2", "serve__executor": "mp"}
UNKNOWN_S = 20.0
"""Longest wait of the new release for an unknown state, in place of the 10 minutes of every deploy."""
STREAM = {"stream": True, "ignore_eos": True, "max_tokens": 30_000, "messages": [{"role": "user", "content": "Talk."}]}
"""The stand-in needs 150 s for it."""

ENDED = {"short closed", "short status 502", "stream closed", "stream cut"}
"""Of requests in a release that has ended. Others get an answer or the refusal (`ignored`)."""


@pytest.fixture(scope="module")
def joined(nodes: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The stand-in on nodes that plain TCP may join."""
    home = tmp_path_factory.mktemp("joined")
    cli = Cli(write_inventory(nodes, home, pairs.fabric), home)
    ran = cli("build", "stand-in", "--once")  # another test may have built it on each node, with other content
    assert ran.code == 0, ran.err
    service = Service(cli, nodes)
    service.sweep()
    yield service
    service.sweep()


# One node to two, in place


def power_fails(node: FleetNode) -> None:
    docker("kill", node.container)


def power_returns(node: FleetNode) -> None:
    docker("start", node.container)
    node.wait()


def link_is_cut(node: FleetNode) -> None:
    """No packet from or to anybody."""
    node.cut()


def link_heals(node: FleetNode) -> None:
    node.heal()


@dataclass(frozen=True)
class Loss:
    """The second node is lost in a phase, until the old release serves again."""

    phase: Phase
    lose: Callable[[FleetNode], None]
    restore: Callable[[FleetNode], None]

    def __str__(self) -> str:
        return f"{self.phase}, {self.lose.__name__}"


POWER, LINK = (power_fails, power_returns), (link_is_cut, link_heals)
STARTS = (Phase.FREE, Phase.WORKERS, Phase.START, Phase.LOAD, Phase.VERIFY, Phase.SWITCH, Phase.BAKE)
LOSSES = [Loss(phase, *fault) for phase in STARTS for fault in (POWER, LINK)]


@pytest.fixture(scope="module")
def pair(joined: Service) -> Deployment:
    """A release over both nodes, as a deploy in place has sent it. It has served once."""
    joined.anew("--node", GATEWAY, name="lone")
    wide = joined.deploy(*BOTH, *IN_PLACE, name="pair", START_S="6", swap__bake_s="30", **PAIR)
    assert (wide.code, wide.json["mode"]) == (0, "in-place"), wide.err
    active = joined.journal().active
    assert active
    return active


def lone(joined: Service, pair: Deployment) -> Container:
    """One release on the gateway's node, in the other slot than the pair, and nothing else of the service."""
    running = joined.running()
    at_rest = joined.journal().swap is None and len(running) == 1
    if not (at_rest and running[0].node == GATEWAY and running[0].slot != pair.slot):
        joined.anew("--node", GATEWAY, name="lone")
        if joined.running()[0].slot == pair.slot:
            moved = joined.deploy("--node", GATEWAY, "--mode", Mode.BESIDE, name=unused())
            assert moved.code == 0, moved.err
            wait_for(lambda: len(joined.running()) == 1)
    (only,) = joined.running()
    return only


def returned(joined: Service, old: str) -> bool:
    """Whether the old release serves and the swap is over, as the gateway's node sees it. No operator is needed."""
    state = joined.state()
    assert state["needs_operator"] == ""
    journal, slot = journal_in(state, joined.name), joined.traffic().active
    over = journal.swap is None and journal.active is not None and slot is not None
    return over and slot is not None and slot.release == old and not [*answers(joined, old)]


@pytest.mark.parametrize("loss", some(LOSSES))
def test_in_place_to_two_nodes_the_old_release_returns_without_the_second_one(
    joined: Service, pair: Deployment, loss: Loss
) -> None:
    old, away = lone(joined, pair), joined.nodes.node(AWAY)
    target = replace(pair, limits=replace(pair.limits, unknown_s=UNKNOWN_S))
    with joined.load(rate=5, streams=1, timeout_s=600) as load, looking(joined) as look, ExitStack() as restored:
        load.wait_for(20)
        journal = joined.journal()
        reply = joined.intend(Deploy(unused(), journal.revision, target, Mode.IN_PLACE))
        assert reply["result"] == "accepted", reply
        for _ in awaited(look, loss.phase, journal.starts):
            pass
        if loss.phase in (Phase.LOAD, Phase.VERIFY, Phase.BAKE):
            time.sleep(0.5)
        restored.callback(loss.restore, away)
        loss.lose(away)
        struck, phase = time.monotonic(), look()["swap"]["phase"]
        wait_for(lambda: returned(joined, old.release))
        took_s = time.monotonic() - struck
        load.wait_for(load.report().good + 20)
        restored.close()
        live = good_end(joined)
        load.wait_for(load.report().good + 20)
    tell(f"in place n1 to n1+n2, {loss.lose.__name__} in {loss.phase} (then {phase})", took_s, load)

    assert live == old.release
    report = load.report()
    served = max(loss.phase.order, Phase(phase).order) >= Phase.SWITCH.order
    assert set(report.failures) <= (ENDED if served else set()), report.examples
    assert ignored(load) == []
    assert set(report.releases) <= {old.release, pair.release}


@pytest.mark.matrix
def test_a_deploy_to_a_second_node_that_stays_away_returns_after_its_ten_minutes(joined: Service) -> None:
    """The other tests shorten them, and send the intent themselves."""
    joined.begin(name="", node=GATEWAY)
    (old,) = joined.running()
    argv = (*BOTH, *IN_PLACE)
    with joined.load(rate=2, streams=1, timeout_s=900, seconds=1200) as load:
        load.wait_for(20)
        with at(joined, Phase.WORKERS, *argv, name=unused(), **PAIR) as deploy, ExitStack() as restored:
            phase, away = phase_of(joined.journal()), joined.nodes.node(AWAY)
            restored.callback(link_heals, away)
            link_is_cut(away)
            struck = time.monotonic()
            wait_for(lambda: returned(joined, old.release), 900)
            took_s = time.monotonic() - struck
            restored.close()
            _, err = deploy.communicate(timeout=PATIENCE_S)
        assert good_end(joined) == old.release
        load.wait_for(load.report().good + 20)
    tell(f"in place n1 to n1+n2, link_is_cut in {phase}, limits of a deploy, exit {deploy.returncode}", took_s, load)

    assert deploy.returncode != 0, err
    assert load.report().failures == {}, load.report().examples


# Pairs beside each other


@dataclass(frozen=True)
class Reboot:
    """A node of both pairs reboots in a phase."""

    phase: Phase
    node: str

    def __str__(self) -> str:
        return f"{self.phase}, {self.node}"


REBOOTS = [Reboot(phase, node) for phase in (Phase.BAKE, Phase.DRAIN, Phase.RETIRE) for node in (AWAY, GATEWAY)]
BAKES = {"swap__bake_s": "30"}
KEEPS = {"swap__keep_old_s": "600"}


def whole_pair(joined: Service) -> str:
    """A pair on both nodes, and nothing else of the service; its release."""
    live = serving_pair(joined)
    if live is None:
        joined.sweep()
        first = joined.deploy(*BOTH, name=unused(), **KEEPS, **PAIR)
        assert (first.code, first.json["mode"]) == (0, "first"), first.err
        return str(first.json["release"])
    return live.release


def serving_pair(joined: Service) -> Deployment | None:
    """The pair that serves alone, with no swap in progress; None if there is none."""
    try:
        journal = joined.journal()
    except (FleetError, KeyError):  # no guard yet
        return None
    live = journal.active
    if live is None or journal.swap or pairs.nodes_of(live) != (GATEWAY, AWAY):
        return None
    return live if pairs.whole(joined, live.release, (GATEWAY, AWAY)) else None


@contextmanager
def stream(joined: Service) -> Iterator[None]:
    """A long answer of the release that serves now."""
    body = {"model": joined.name, **STREAM}
    with requests.post(f"{joined.url}/v1/chat/completions", json=body, stream=True, timeout=60) as reply:
        assert reply.status_code == 200, reply.text
        yield


@pytest.mark.parametrize("reboot", some(REBOOTS, Reboot(Phase.RETIRE, AWAY)))
def test_a_whole_pair_serves_after_a_reboot_during_a_swap_of_pairs(joined: Service, reboot: Reboot) -> None:
    old = whole_pair(joined)
    long = BAKES if reboot.phase is Phase.BAKE else {}
    with joined.load(rate=5, streams=1) as load, stream(joined) if reboot.phase is Phase.DRAIN else ExitStack():
        load.wait_for(20)
        beside = (*BOTH, "--mode", Mode.BESIDE)
        with at(joined, reboot.phase, *beside, name=unused(), **{**KEEPS, **PAIR, **long}) as deploy:
            phase = phase_of(joined.journal())
            struck = time.monotonic()
            joined.nodes.node(reboot.node).reboot(graceful=False)
            deploy.communicate(timeout=PATIENCE_S)
            live = good_end(joined)
        took_s = time.monotonic() - struck
        load.wait_for(load.report().good + 20)
    tell(f"pairs beside, {reboot.node} reboots in {phase}, {'old' if live == old else 'new'} pair serves", took_s, load)

    if reboot.node != GATEWAY:
        assert set(load.report().failures) <= ENDED, load.report().examples
        assert ignored(load) == []
    active = joined.journal().active
    assert active
    assert (active.release, pairs.nodes_of(active)) == (live, (GATEWAY, AWAY))
    running = [(rank, release) for _, rank, release in pairs.ranks(joined) if release == live]
    assert running == [(0, live), (1, live)]


# All nodes at once


CUTS = [
    Moment(Mode.IN_PLACE, Phase.FREE),
    Moment(Mode.IN_PLACE, Phase.BAKE, "node-1"),
    Moment(Mode.ACROSS, Phase.LOAD),
    Moment(Mode.BESIDE, Phase.VERIFY, "node-1"),
    Moment(Mode.ACROSS, Phase.DRAIN),
    Moment(Mode.BESIDE, Phase.RETIRE),
]


def power_of_all(nodes: Fleet) -> None:
    """All nodes are off at once, and boot at once."""
    names = [node.container for node in nodes.nodes]
    docker("kill", *names)
    docker("start", *names)
    with ThreadPoolExecutor() as booting:
        for boot in [booting.submit(node.wait) for node in nodes.nodes]:
            boot.result()


@pytest.mark.matrix
@pytest.mark.parametrize("moment", CUTS, ids=str)
def test_a_swap_settles_after_a_power_cut_of_all_nodes(joined: Service, moment: Moment) -> None:
    joined.begin(name="", node=moment.blue)
    (old,) = joined.running()
    long = {Phase.BAKE: BAKES, Phase.RETIRE: KEEPS}.get(moment.phase, {})
    keeps = KEEPS if moment.phase is Phase.RETIRE else {}
    if keeps:
        old = joined.anew("--node", moment.blue, name=unused(), **KEEPS)
    cut_while(joined, moment.phase, moment.argv, f"{moment}", old.release, **long)


@pytest.mark.matrix
@pytest.mark.parametrize("phase", [Phase.SWITCH, Phase.BAKE, Phase.RETIRE])
def test_a_swap_of_pairs_settles_after_a_power_cut_of_all_nodes(joined: Service, phase: Phase) -> None:
    old, long = whole_pair(joined), BAKES if phase is Phase.BAKE else {}
    argv = (*BOTH, "--mode", Mode.BESIDE)
    cut_while(joined, phase, argv, f"pairs beside, {phase}", old, **{**KEEPS, **PAIR, **long})

    active = joined.journal().active
    assert active
    assert pairs.nodes_of(active) == (GATEWAY, AWAY)


def cut_while(joined: Service, phase: Phase, argv: tuple[str, ...], what: str, old: str, **changes: str) -> None:
    """Cut the power of all nodes in a phase of a deploy; a release serves in the end, as it would for any fault."""
    with joined.load(rate=5, streams=1) as load, stream(joined) if phase is Phase.DRAIN else ExitStack():
        load.wait_for(20)
        with at(joined, phase, *argv, name=unused(), **changes) as deploy:
            began = phase_of(joined.journal())
            struck = time.monotonic()
            power_of_all(joined.nodes)
            booted_s = time.monotonic() - struck
            deploy.communicate(timeout=PATIENCE_S)
            live = good_end(joined)
        took_s = time.monotonic() - struck
        load.wait_for(load.report().good + 20)
    which = "old" if live == old else "new"
    tell(f"all power, {what} (in {began}), booted after {booted_s:.0f} s, {which} release serves", took_s, load)


def ignored(load: Traffic) -> list[RequestRecord]:
    """Requests that no engine had, and that got no answer.

    HAProxy closes a connection that it has kept when the engine ends that has its request; a new one gets 502.
    """
    records = load.records()
    ended = min((record.end for record in records if record.error == "cut"), default=math.inf)
    closed = [record for record in records if record.error == "closed"]
    return [record for record in closed if record.connection == "fresh" or record.start > ended]


def phase_of(journal: Journal) -> str:
    """The phase of its swap."""
    return journal.swap.phase if journal.swap else "no swap"


def tell(what: str, took_s: float, load: Traffic) -> None:
    """Print the figures of a case."""
    report = load.report()
    counts = f"{report.good} good, {report.refusals} documented refusals, failed: {report.failures or 'none'}"
    print(f"\n{what}: {took_s:.0f} s; {counts}; longest gap {report.longest_gap_s:.1f} s")
