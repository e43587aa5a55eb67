"""Two replicas of a service, one on each GPU of this machine, beside one: throughput, rolling updates, failures."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from sparkops.config import inventory, recipe_file
from sparkops.gateway import facts as gateway_facts
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.network import subnet
from tests.fleet.shell import FleetError
from tests.lab.gpu import models, streams
from tests.lab.gpu import nodes as two_nodes
from tests.lab.gpu.conftest import HOME, build, larger, sized
from tests.lab.gpu.evidence import Evidence
from tests.lab.gpu.lab import RECIPES, Lab, figures, last, reason
from tests.lab.gpu.machine import Gpu
from tests.lab.gpu.options import Options
from tests.real.program import Cli
from tests.real.service import wait_for

pytestmark = pytest.mark.gpu
BOTH = ("--node", "node-1", "--node", "node-2")
ROLLING = ("--mode", "rolling")
FAILED, REFUSED = 1, 5
STREAMS = (8, 32, 64)
MODELS = {"tiny-qwen3": ("tiny_model.py",), "tiny-noise": ("tiny_model.py", "--noise"), "mid-qwen3": ("mid_model.py",)}
"""By directory: the program that makes it, and its options."""
MID_WORDS = 900
"""Words of a prompt to the larger model: about a thousand tokens of its tokenizer."""
BACK_S = 240.0
WATCHED_S = 0.5


@pytest.fixture(scope="module")
def service(nodes: RealFleet, given: Options, index: int | None, gpus: tuple[Gpu, ...], evidence: Evidence) -> Lab:
    """The image and the models on both nodes, and the service of the tiny one, which does not run yet."""
    path = RECIPES / f"{given.recipe}.yaml"
    recipe = recipe_file.load(path)
    with evidence.step("the parent image on both nodes"):
        two_nodes.give(nodes, recipe.image.parent)
    file = two_nodes.inventory(nodes, "replicas.yaml", build=build(given, index, str(subnet(nodes.name)[1])))
    cli = Cli(file, HOME, env={"PATH": os.environ["PATH"]})
    address = nodes.node(two_nodes.GATEWAY).address
    settings = {**sized(gpus), "model.path": "tiny-qwen3", "serve.replicas": "2", "swap.keep_old_s": "0"}
    clients = two_nodes.clients(nodes)
    lab = Lab(cli, evidence, clients, path, recipe.service, recipe.serve.port, address, settings)
    built = lab.run("build the CUDA image on both nodes", "build", str(lab.recipe), "--json", timeout=3600).json
    for package in (lab.engine, "torch", "transformers"):
        show = f"from importlib.metadata import version; print(version('{package}'))"
        evidence.fact(
            package,
            clients["node-1"]("run", "--rm", "--network=none", "--entrypoint=python", built["tag"], "-c", show),
        )
    fleet = inventory.load(file)
    with evidence.step("train the models in the image on both nodes") as step, ThreadPoolExecutor() as threads:
        making = [
            threads.submit(models.make, fleet, node.name, built["tag"], program, f"/out/{name}", *options)
            for node in nodes.nodes
            for name, (program, *options) in MODELS.items()
        ]
        step.figures += [output for job in making if (output := job.result().strip())]
    return lab


@pytest.fixture(scope="module")
def two(service: Lab) -> Lab:
    """Two replicas of one release serve."""
    if {node for node, _ in service.containers()} != {*service.nodes} or len(active(service)) != 2:
        service.deploy("deploy two replicas", *BOTH)
    both_serve(service)
    return service


def active(lab: Lab) -> list[tuple[str, str]]:
    """Return node and container of each replica that requests go to, of whatever release."""
    replicas = [replica for replica in lab.status()["replicas"] if replica["active"]]
    return [(rank["node"], rank["container"]) for replica in replicas for rank in replica["ranks"]]


def serving(lab: Lab) -> int:
    """Return the number of replicas that the gateway sends requests to."""
    text = lab.nodes[two_nodes.GATEWAY]("exec", "sparkops-gateway", "gateway", "show")
    active = gateway_facts.parse_gateway(text).services[lab.service].active
    return len(active.serving) - len(active.down) if active else 0


def both_serve(lab: Lab) -> None:
    """Wait until both replicas get requests. Raises AssertionError after BACK_S."""
    wait_for(lambda: serving(lab) == 2 and lab.running() == len(active(lab)) == 2, BACK_S)


def started(lab: Lab) -> Mapping[str, str]:
    """Return when the container that serves on each node was started."""
    return {node: lab.nodes[node]("inspect", "--format", "{{.State.StartedAt}}", name) for node, name in active(lab)}


class Watch:
    """The fewest replicas that had a share of the requests while it ran."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.least, self.over = lab, 2, threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.over.wait(WATCHED_S):
            with suppress(FleetError):
                self.least = min(self.least, serving(self.lab))

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def rates(lab: Lab, title: str, seed: int, *, words: int = 0) -> dict[int, float]:
    """Measure the tokens per second through the gateway for each number of streams, a step for each.

    Another seed has other prompts of the same length: the prefix cache helps neither one replica nor two.
    """
    measured = dict[int, float]()
    for count in STREAMS:
        with lab.evidence.step(f"{title}, {count} streams") as step:
            result = streams.measure(lab.url, lab.service, count, seed=1000 * seed + count, words=words)
            step.figures.append(str(result))
            assert not result.failures, result.failures
            measured[count] = result.rate
    return measured


def compare(lab: Lab, title: str, one: Mapping[int, float], two: Mapping[int, float]) -> None:
    """Note by how much two replicas exceed one."""
    with lab.evidence.step(f"two replicas against one: {title}") as step:
        step.figures += [
            f"{count} streams: {two[count]:.0f} against {one[count]:.0f} tokens/s, {two[count] / one[count]:.2f}x"
            for count in one
        ]


def test_two_replicas_serve_more_than_one(service: Lab) -> None:
    service.doctor()
    service.deploy("deploy one replica", "--node", "node-1", "--replicas", "1")
    service.check_answer("ask the replica")
    one = rates(service, "tiny model, one replica", 1)
    with service.loaded("a second replica"):
        before = started(service)
        service.deploy("add a second replica", *BOTH)
        both_serve(service)
    assert started(service)["node-1"] == before["node-1"]
    two = rates(service, "tiny model, two replicas", 2)
    compare(service, "tiny model", one, two)
    assert two[max(STREAMS)] > one[max(STREAMS)]


def test_rolling_updates_lose_no_request(two: Lab, given: Options) -> None:
    releases = list[str]()
    with two.loaded(f"{given.updates} rolling updates in a row") as load, Watch(two) as watch:
        for number in range(1, int(given.updates) + 1):
            change = {"args.enforce-eager": "true", "env.RELEASE": f"update-{number}"}
            ran = two.deploy(f"rolling update {number}", *BOTH, *ROLLING, change=change)
            assert ran.json["mode"] == "rolling"
            releases.append(ran.json["release"])
            load.wait_for(load.report().good + 50, 60)
        both_serve(two)
    with two.evidence.step("replicas that got requests during the updates") as step:
        step.figures.append(f"at least {watch.least} of 2")
        assert watch.least == 1
    assert len({*releases}) == int(given.updates)
    assert two.check_answer("ask after the updates") == releases[-1]


def unharmed(lab: Lab, title: str, change: Mapping[str, str], code: int, says: str) -> set[str]:
    """Deploy a bad release under load, of which no request may fail. Returns the nodes whose replica was restarted."""
    release, before = lab.check_answer(f"ask before: {title}"), started(lab)
    with lab.loaded(title) as load:
        ran = lab.deploy(title, *BOTH, *ROLLING, change=change, code=code)
        both_serve(lab)
        load.wait_for(load.report().good + 50, 60)
    assert says in ran.out + ran.err, ran.err
    after = started(lab)
    with lab.evidence.step(f"replicas after: {title}") as step:
        restarted = {node for node in before if before[node] != after[node]}
        step.figures.append(f"release {release}; restarted: {', '.join(sorted(restarted)) or 'none'}")
    with lab.evidence.step(f"releases that answers name: {title}") as step:
        named = load.report().releases
        step.figures.append(", ".join(f"{name} {count}" for name, count in named.items()))
        assert {*named} == {release}, named
    return restarted


def test_a_release_that_asks_for_more_memory_than_there_is_touches_no_replica(two: Lab) -> None:
    change = {"args.gpu-memory-utilization": "0.97", "args.enforce-eager": "true"}
    assert not unharmed(two, "more of the GPU than the recipe claims", change, REFUSED, "less than the engine can take")


def test_a_release_whose_weights_are_noise_stops_at_the_first_replica(two: Lab) -> None:
    change = {"model.path": "tiny-noise", "args.enforce-eager": "true"}
    assert len(unharmed(two, "weights of noise", change, FAILED, "questions")) == 1


@contextmanager
def replaced(lab: Lab, title: str, name: str) -> Iterator[tuple[str, str]]:
    """A rolling update meanwhile. Yields node and container of the new replica as soon as its container runs."""
    change = {"args.enforce-eager": "true", "env.RELEASE": name}
    given = {**lab.settings, **change}
    sets = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    argv = ("deploy", str(lab.recipe), "--json", *BOTH, *ROLLING, *sets)
    before = {container for _, container in lab.containers()}
    with lab.evidence.step(title, ("sparkops", *argv)) as step:
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(lab.cli, *argv, timeout=600)
            wait_for(lambda: {container for _, container in lab.containers()} - before, 120)
            yield next(one for one in lab.containers() if one[1] not in before)
            ran = running.result()
        lab.evidence.keep(f"{title}.txt".replace(" ", "-"), f"{ran.out}\n{ran.err}\nexit {ran.code}")
        step.result = f"exit code {ran.code}"
        step.figures += [*figures(ran), *([reason(ran.err)] if ran.code else [])]
        assert ran.code in (0, FAILED), last(ran.err)
    lab.save(title)


def test_a_new_replica_that_is_killed_while_it_starts_costs_no_request(two: Lab, nodes: RealFleet) -> None:
    with two.loaded("the new replica is killed") as load:
        with replaced(two, "rolling update whose new replica is killed", "killed-new") as (node, container):
            time.sleep(5)
            nodes.node(node).kill_container(container)
        both_serve(two)
        load.wait_for(load.report().good + 50, 60)
    assert len({*started(two)}) == 2
    two.check_answer("ask after the kill")


def test_the_only_replica_that_serves_is_killed_and_both_come_back(two: Lab, nodes: RealFleet) -> None:
    """Requests fail meanwhile, since none serves. The report shows for how long."""
    with replaced(two, "rolling update whose other replica is killed", "killed-old") as (node, _):
        victim = next(one for one in active(two) if one[0] != node)
        nodes.node(victim[0]).kill_container(victim[1])
        begin = time.monotonic()
        wait_for(lambda: not two.answers(), 30)
        two.answers_again("no replica serves: until one answers again", BACK_S)
    both_serve(two)
    with two.evidence.step("until both replicas serve") as step:
        step.figures.append(f"{time.monotonic() - begin:.1f} s after the kill")
    two.check_answer("ask after the second kill")


def test_two_replicas_of_a_larger_model_serve_more_than_one(two: Lab, gpus: tuple[Gpu, ...]) -> None:
    """Prompts of about a thousand tokens, which no replica has seen."""
    mid = two.with_(service="gpu-mid", port=8700, settings={**two.settings, **larger(gpus, 8700)})
    mid.deploy("deploy two replicas of the larger model", *BOTH)
    mid.check_answer("ask the larger model")
    both_serve(mid)
    both = rates(mid, "1.4B model, two replicas", 2, words=MID_WORDS)
    mid.deploy("take one replica away", "--node", "node-1", "--replicas", "1")
    wait_for(lambda: serving(mid) == 1, 60)
    one = rates(mid, "1.4B model, one replica", 1, words=MID_WORDS)
    compare(mid, "1.4B model", one, both)
    assert both[max(STREAMS)] > one[max(STREAMS)]
