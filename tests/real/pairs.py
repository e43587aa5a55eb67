"""A pair of nodes as one server, with the real vLLM on the nodes' CPUs: what `make pairs` tries, one after the other.

`python -m tests.real.pairs [NAME...]` runs the cases whose names begin so, on a fleet of four nodes, and prints a
line for each. It takes about an hour on two cores, so `make test` runs only tests/real/test_pair.py.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from sparkops.config import inventory
from sparkops.operator.demo.traffic.generator import Traffic
from sparkops.serving import engine_spec
from sparkops.swap.model import Deployment, Phase
from tests import checkpoints
from tests.fleet.fleet import Fleet
from tests.real.endings import at
from tests.real.program import Cli, Ran
from tests.real.service import GATEWAY, Service, wait_for, write_inventory

RECIPE, NAME, PORT = "tiny-qwen3-cpu-tp2", "tiny-tp2", 8010
SETTINGS = {
    "swap.bake_s": "5",
    "swap.reserve_gib": "1",
    "swap.drain_s": "60",
    "swap.keep_old_s": "0",
    "probe.passes": "1",
    "model.path": "tiny-qwen3",
}
CHECKPOINTS = {"tiny-qwen3": (), "tiny-other": ("--seed", "1"), "tiny-noise": ("--noise",)}
GENTLE: Mapping[str, Any] = {"rate": 1, "streams": 1, "stream_pause_s": 3, "timeout_s": 120}
ONE, OTHER = ("node-1", "node-2"), ("node-3", "node-4")
PATIENT, HASTY = "20", "40"  # seconds of bake, and without progress while a green loads


def fabric(data: dict[str, Any]) -> None:
    """What an inventory says where containers are nodes: they have no RDMA."""
    data.update(gateway={"node": GATEWAY}, fabric={"allow_tcp": True})


def prepare(cli: Cli, nodes: Fleet, *names: str) -> None:
    """The image with the same content on every node, and checkpoints there; without names all three."""
    built = cli("build", RECIPE, "--json", timeout=900)
    assert built.code == 0, built.err
    image, fleet = str(built.json["tag"]), inventory.load(cli.inventory)
    for name in names or CHECKPOINTS:
        checkpoints.provide(fleet, image, nodes.home / "checkpoints", name, *CHECKPOINTS[name])


def service(cli: Cli, nodes: Fleet, **settings: str) -> Service:
    """The tiny model over two nodes, behind the gateway."""
    return Service(cli, nodes, RECIPE, NAME, PORT, {**SETTINGS, **settings})


def on(names: tuple[str, ...], *argv: str) -> tuple[str, ...]:
    """Arguments of a deploy to these nodes, in the order of their ranks."""
    return (*(word for name in names for word in ("--node", name)), *argv)


def ranks(pair: Service) -> list[tuple[str, int, str]]:
    """Node, rank and release of every container of the service that runs, read past sparkops itself."""
    return sorted((container.node, container.rank, container.release) for container in pair.running())


def whole(pair: Service, release: str, names: tuple[str, ...]) -> bool:
    """Whether both ranks of a release run on these nodes, and nothing else of the service anywhere."""
    return ranks(pair) == sorted((name, number, release) for number, name in enumerate(names))


@dataclass
class Trial:
    """One run of all cases: the service, and what became of each."""

    pair: Service
    outcomes: list[str] = field(default_factory=list)

    def begin(self) -> str:
        """One pair serves on the first two nodes."""
        live = self.pair.journal().active
        if live and nodes_of(live) == ONE and whole(self.pair, live.release, ONE) and self.pair.journal().swap is None:
            return live.release
        self.pair.sweep()
        first = self.pair.deploy(*on(ONE))
        assert (first.code, first.json["mode"]) == (0, "first"), first.err
        return str(first.json["release"])

    def green(self) -> str:
        """The checkpoint that does not serve now: both know the answers, and each makes another release."""
        live = self.pair.journal().active
        path = engine_spec.of(next(live.ranks)).recipe["model"]["path"] if live else ""
        return {"tiny-qwen3": "tiny-other"}.get(path, "tiny-qwen3")

    @contextmanager
    def load(self) -> Iterator[Traffic]:
        """Requests and streams through the gateway, meanwhile."""
        with self.pair.load(**GENTLE) as load:
            load.wait_for(5, 120)
            yield load
            load.wait_for(load.report().good + 5, 120)

    def first(self) -> str:
        """A pair comes up where nothing serves."""
        self.pair.sweep()
        ran = self.pair.deploy(*on(ONE))
        assert ran.code == 0, ran.err
        row = self.pair.status()
        [replica] = row["replicas"]
        assert [(rank["node"], rank["rank"]) for rank in replica["ranks"]] == [("node-1", 0), ("node-2", 1)]
        assert row["state"] == "healthy"
        return took(ran)

    def in_place(self) -> str:
        """The next release takes the nodes of the first one."""
        self.begin()
        ran = self.pair.deploy(*on(ONE, "--mode", "in-place", "--allow-downtime"), model__path=self.green())
        assert (ran.code, ran.json["mode"]) == (0, "in-place"), ran.err
        assert whole(self.pair, ran.json["release"], ONE), ranks(self.pair)
        return took(ran)

    def across(self) -> str:
        """To two other nodes and back, while requests and streams run: none fails."""
        self.begin()
        outcomes = []
        for names in (OTHER, ONE):
            with self.load() as load:
                ran = self.pair.deploy(*on(names, "--mode", "across"), model__path=self.green())
            report = load.report()
            assert (ran.code, ran.json["mode"], ran.json["cut"]) == (0, "across", 0), ran.err
            assert (report.failures, report.refusals) == ({}, 0), report.examples
            assert whole(self.pair, ran.json["release"], names), ranks(self.pair)
            outcomes.append(f"{took(ran)}, {report.good} answers, {report.streams} streams, 0 failed")
        return "; back: ".join(outcomes)

    def noise(self) -> str:
        """In place, a green that answers nonsense is refused, and both ranks of blue come back by themselves."""
        blue = self.begin()
        ran = self.pair.deploy(*on(ONE, "--mode", "in-place", "--allow-downtime"), model__path="tiny-noise")
        assert ran.code == 6, ran.err
        assert whole(self.pair, blue, ONE), ranks(self.pair)
        return f"refused after {ran.took_s:.0f} s"

    def single(self) -> str:
        """From a pair to one node and back to a pair."""
        self.begin()
        alone = self.pair.deploy(*on(OTHER[:1], "--mode", "across"), serve__tensor_parallel="1")
        assert alone.code == 0, alone.err
        assert ranks(self.pair) == [(OTHER[0], 0, alone.json["release"])]
        back = self.pair.deploy(*on(ONE, "--mode", "across"), model__path="tiny-other")
        assert back.code == 0, back.err
        assert whole(self.pair, back.json["release"], ONE), ranks(self.pair)
        return f"{took(alone)}; back: {took(back)}"

    def interface(self) -> str:
        """Rank 1 is given Docker's own bridge, which leads nowhere: known in seconds, and nothing is stopped for it."""
        blue = self.begin()

        def wrong(data: dict[str, Any]) -> None:
            fabric(data)
            data["nodes"]["node-2"]["fabric"] = [{"interface": "docker0"}]

        with tempfile.TemporaryDirectory() as directory:
            cli = replace(self.pair.cli, inventory=write_inventory(self.pair.nodes, Path(directory), wrong))
            astray = replace(self.pair, cli=cli)
            refused = astray.deploy(*on(ONE, "--mode", "in-place", "--allow-downtime"), model__path=self.green())
        assert refused.code in (1, 5), refused.err
        assert "node-2" in refused.err, refused.err
        assert whole(self.pair, blue, ONE), ranks(self.pair)
        return f"refused after {refused.took_s:.1f} s: {refused.err.strip().splitlines()[-2].strip()}"

    def taken_port(self) -> str:
        """A program of node-1 has the port where the ranks would meet: known in seconds, nothing is stopped for it."""
        blue = self.begin()
        (active,) = {container.slot for container in self.pair.running()}
        port = PORT + (2 if active == "blue" else 1) + 2
        node = self.pair.nodes.node("node-1")
        listen = f"import socket, time; s = socket.create_server(('0.0.0.0', {port})); time.sleep(600)"
        node.exec("sh", "-c", f'nohup python3 -c "{listen}" >/dev/null 2>&1 &')
        try:
            refused = self.pair.deploy(*on(ONE, "--mode", "in-place", "--allow-downtime"), model__path=self.green())
        finally:
            node.exec("pkill", "-f", f"create_server.*{port}")
        assert refused.code in (1, 5), refused.err
        assert f"node-1: port {port} is in use, where rank 0 listens for the others" in refused.err, refused.err
        assert "cannot reach" not in refused.err, refused.err
        assert f"sport = :{port}" in refused.err, refused.err
        assert whole(self.pair, blue, ONE), ranks(self.pair)
        return f"refused after {refused.took_s:.1f} s: {refused.err.strip().splitlines()[-2].strip()}"

    def rank_fails(self) -> str:
        """Rank 1 reads another config.json than rank 0, which only waits: the reason of rank 1 is named everywhere."""
        blue, green = self.begin(), self.green()
        node, file = self.pair.nodes.node("node-2"), f"/srv/models/{green}/config.json"
        node.exec("sed", "-i.kept", 's/"model_type": "[a-z0-9_]*"/"model_type": "gemma9"/', file)
        try:
            way = on(ONE, "--mode", "in-place", "--allow-downtime")
            failed = self.pair.deploy(*way, model__path=green, serve__executor="mp")
        finally:
            node.exec("mv", f"{file}.kept", file)
        wait_for(lambda: whole(self.pair, blue, ONE), 300, 1)
        told = (failed.err, self.pair.cli("history", NAME).out, self.pair.cli("status", NAME).out)
        assert failed.code == 6, failed.err
        for text in told:
            assert "node-2" in text, text
            assert "gemma9" in text, text
        assert "likely cause: the Transformers in the image is older than the model" in failed.err, failed.err
        return f"{failed.code}: {next(line for line in failed.err.splitlines() if 'gemma9' in line).strip()[:100]}"

    def struck(self, phase: Phase, blow: Callable[[Fleet], None], mend: Callable[[Fleet], None], cause: str) -> str:
        """While a green comes up on two other nodes, something befalls it in `phase`: blue serves on, alone."""
        blue = self.begin()
        slow = {"swap__bake_s": PATIENT, "probe__startup__stall_s": HASTY}
        where, green = on(OTHER, "--mode", "across"), self.green()
        with self.load() as load, at(self.pair, phase, *where, model__path=green, **slow) as deploy:
            time.sleep(1 if phase in LONG else 0)
            struck = time.monotonic()
            blow(self.pair.nodes)
            _, err = deploy.communicate(timeout=400)
            known = time.monotonic() - struck
            mend(self.pair.nodes)
        report = load.report()
        wait_for(self._settled, 300, 1)
        live = self.pair.journal().active
        broken = f"{sum(report.failures.values())} failed and {report.refusals} refused of {report.good} requests"
        if phase is Phase.DRAIN and deploy.returncode == 0:
            assert live, err
            assert nodes_of(live) == OTHER, err
            return f"struck after the last look at green, which stays and is whole again, {broken}"
        assert (deploy.returncode, live and live.release) == (1, blue), (err, live)
        assert cause in err, err
        assert "rank 0 on node-3" in err, err
        assert "rank 1 on node-4" in err, err
        return f"told after {known:.0f} s, {broken}"

    def struck_in_place(self, phase: Phase, blow: Callable[[Fleet], None], mend: Callable[[Fleet], None]) -> str:
        """While a green comes up on the nodes of blue, something befalls them: blue comes back by itself, whole."""
        blue = self.begin()
        slow = {"swap__bake_s": PATIENT, "probe__startup__stall_s": HASTY}
        where, green = on(ONE, "--mode", "in-place", "--allow-downtime"), self.green()
        with at(self.pair, phase, *where, model__path=green, **slow) as deploy:
            time.sleep(1 if phase in LONG else 0)
            blow(self.pair.nodes)
            _, err = deploy.communicate(timeout=400)
            mend(self.pair.nodes)
        began = time.monotonic()
        wait_for(self._settled, 300, 1)
        live = self.pair.journal().active
        assert deploy.returncode
        assert live
        assert live.release == blue, (err, live)
        return f"exit {deploy.returncode}, blue whole after {time.monotonic() - began:.0f} s more"

    def _settled(self) -> bool:
        """Whether no guard has anything to do, and both ranks of what has the traffic run, and nothing else."""
        live, slot = self.pair.journal().active, self.pair.traffic().active
        swaps = [self.pair.journal(name).swap for name in (*ONE, *OTHER)]
        if any(swaps) or not (live and slot and live.release == slot.release):
            return False
        return whole(self.pair, live.release, nodes_of(live))


def nodes_of(release: Deployment) -> tuple[str, ...]:
    """The nodes of its ranks, in order."""
    return tuple(rank.node for rank in release.ranks)


def took(ran: Ran) -> str:
    """How long a deploy took, and its load."""
    return f"{ran.took_s:.0f} s, of which load {ran.json['seconds'][Phase.LOAD.value]:.0f} s"


def rank_dies(number: int, names: tuple[str, ...] = OTHER) -> Callable[[Fleet], None]:
    """SIGKILL for one rank of green as soon as it runs, past Docker, which takes it for a crash."""

    def blow(nodes: Fleet) -> None:
        running = f"docker ps -q --filter label=sparkops.service={NAME} --filter label=sparkops.rank={number}"
        script = f'until id=$({running}) && [ -n "$id" ]; do sleep 0.05; done; echo "$id"'
        node = nodes.node(names[number])
        node.kill_container(node.exec("sh", "-c", script).strip())

    return blow


def power_fails(name: str) -> Callable[[Fleet], None]:
    """A node is gone at once."""
    return lambda nodes: _engine("kill", nodes.node(name).container)


def power_comes(name: str) -> Callable[[Fleet], None]:
    """It boots."""

    def mend(nodes: Fleet) -> None:
        _engine("start", nodes.node(name).container)
        nodes.node(name).wait()

    return mend


def _engine(verb: str, container: str) -> None:
    subprocess.run(("docker", verb, container), check=True, capture_output=True, timeout=60)


def link_is_cut(nodes: Fleet) -> None:
    """Between the ranks no packet passes, silently; both nodes can still be reached from elsewhere."""
    nodes.node(OTHER[1]).cut(nodes.node(OTHER[0]))


def link_heals(nodes: Fleet) -> None:
    """It passes again."""
    nodes.node(OTHER[1]).heal()


def nothing(_: Fleet) -> None:
    """Nothing is to be mended."""


LONG = (Phase.LOAD, Phase.VERIFY, Phase.BAKE)
"""Phases that are struck in their midst, and not at their begin."""
PHASES = (Phase.START, Phase.LOAD, Phase.VERIFY, Phase.SWITCH, Phase.BAKE, Phase.PROMOTE, Phase.DRAIN)


def cases(trial: Trial) -> Iterator[tuple[str, Callable[[], str]]]:
    """Every case by name."""
    for executor in ("ray", "mp"):
        run = Trial(replace(trial.pair, settings={**trial.pair.settings, "serve.executor": executor}))
        for case in (run.first, run.in_place, run.across, run.noise, run.single, run.interface):
            yield f"{executor}-{case.__name__}", case
        for phase in PHASES:
            yield f"{executor}-rank-0-{phase}", _case(run, phase, rank_dies(0), nothing, "-r0")
            yield f"{executor}-rank-1-{phase}", _case(run, phase, rank_dies(1), nothing, "-r1 ")
            yield f"{executor}-node-{phase}", _case(run, phase, power_fails("node-4"), power_comes("node-4"), "node-4")
            yield f"{executor}-link-{phase}", _case(run, phase, link_is_cut, link_heals, "node-3")
        for phase in (Phase.FREE, Phase.LOAD, Phase.BAKE):
            prefix = f"{executor}-in-place-{phase.name.lower()}"
            yield f"{prefix}-node", partial(run.struck_in_place, phase, power_fails("node-2"), power_comes("node-2"))
            if phase is not Phase.FREE:
                yield f"{prefix}-rank", partial(run.struck_in_place, phase, rank_dies(1, ONE), nothing)


def _case(
    trial: Trial, phase: Phase, blow: Callable[[Fleet], None], mend: Callable[[Fleet], None], cause: str
) -> Callable[[], str]:
    return lambda: trial.struck(phase, blow, mend, cause)


def main(prefixes: list[str]) -> int:
    """Run the cases whose names begin with one of `prefixes`; all of them without one."""
    nodes = Fleet.up(4)
    home = Path(tempfile.mkdtemp(prefix="pairs-"))
    cli = Cli(write_inventory(nodes, home, fabric), home)
    prepare(cli, nodes)
    trial = Trial(service(cli, nodes))
    failed = 0
    for name, case in cases(trial):
        if prefixes and not any(name.startswith(prefix) for prefix in prefixes):
            continue
        began = time.monotonic()
        try:
            outcome = f"ok: {case()}"
        except (AssertionError, subprocess.SubprocessError) as error:
            failed += 1
            outcome = f"FAILED: {error}"
        print(f"{name} ({time.monotonic() - began:.0f} s) {outcome}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
