"""sparkops on the machine with the GPUs: each run of it is a step of the report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import requests

from sparkops.config import recipe_file
from sparkops.operator.demo.traffic.generator import Traffic
from tests.lab.gpu.evidence import Evidence
from tests.real.program import Cli, Ran
from tests.real.service import wait_for

RECIPES = Path("tests/lab/gpu/recipes")
"""Relative to the checkout, where sparkops runs: the report shows no path of the machine."""
SETTLED_S = 150.0
QUESTION, ANSWER = "What is the capital of France?", "Paris"
LOAD: Mapping[str, Any] = {"rate": 40, "streams": 6, "seconds": 1200, "stream_pause_s": 0.2, "timeout_s": 120}
Docker = Callable[..., str]
"""Runs the Docker client on one node with these arguments. Returns what it prints, raises FleetError."""


@dataclass(frozen=True)
class Lab:
    """A service behind the gateway. `nodes`: the Docker client of each node by name."""

    cli: Cli
    evidence: Evidence
    nodes: Mapping[str, Docker]
    recipe: Path
    service: str
    port: int
    address: str = "127.0.0.1"
    """Of the gateway."""
    settings: Mapping[str, str] = field(default_factory=dict)

    def with_(self, **changes: Any) -> Self:
        """Return the same with other fields."""
        return replace(self, **changes)

    def run(self, title: str, *argv: str, code: int = 0, timeout: float = 600) -> Ran:
        """Run sparkops as a step. Raises AssertionError for another exit code."""
        with self.evidence.step(title, ("sparkops", *argv)) as step:
            ran = self.cli(*argv, timeout=timeout)
            self.evidence.keep(f"{len(self.evidence.steps):02}-{argv[0]}.txt", f"{ran.out}\n{ran.err}\nexit {ran.code}")
            assert ran.code == code, f"exit code {ran.code}, expected {code}: {last(ran.err)}"
            step.result = f"exit code {ran.code}"
            step.figures += figures(ran)
            if code:
                step.figures.append(reason(ran.err))
        return ran

    def deploy(self, title: str, *argv: str, change: Mapping[str, str] | None = None, code: int = 0) -> Ran:
        """Deploy as a step with changed keys of the recipe, and keep the logs of its engines."""
        given = {**self.settings, **(change or {})}
        sets = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
        try:
            return self.run(title, "deploy", str(self.recipe), "--json", *argv, *sets, code=code)
        finally:
            self.save(title)

    def containers(self) -> Iterator[tuple[str, str]]:
        """Yield node and name of each container of the service, newest first on each node."""
        for node, docker in self.nodes.items():
            listing = ("ps", "--all", "--filter", f"label=sparkops.service={self.service}", "--format", "{{.Names}}")
            for name in docker(*listing).split():
                yield node, name

    def running(self) -> int:
        """Return how many containers of the service run."""
        mine = ("ps", "--quiet", "--filter", f"label=sparkops.service={self.service}")
        return sum(len(docker(*mine).split()) for docker in self.nodes.values())

    def settle(self) -> None:
        """Wait until nothing but the release that serves runs. Raises AssertionError after SETTLED_S."""
        wait_for(lambda: self.running() == len(self.live()), SETTLED_S)

    def status(self) -> Any:
        """Return the row of the service in `sparkops status --json`."""
        services = json.loads(self.cli("status", "--json").out)["services"]
        return next(row for row in services if row["name"] == self.service)

    def live(self) -> list[tuple[str, str]]:
        """Return node and container of each rank that has the traffic."""
        row = self.status()
        live = [(row["live"]["release"], row["live"]["slot"])]
        replicas = [replica for replica in row["replicas"] if (replica["release"], replica["slot"]) in live]
        return [(rank["node"], rank["container"]) for replica in replicas for rank in replica["ranks"]]

    def save(self, title: str) -> None:
        """Keep the log of the newest container on each node."""
        newest = dict[str, str]()
        for node, name in self.containers():
            newest.setdefault(node, name)
        for node, name in newest.items():
            log = self.nodes[node]("logs", "--timestamps", name, both=True)
            self.evidence.keep(f"{slug(title)}-{node}.log", log)

    @property
    def engine(self) -> str:
        """The engine of the recipe."""
        return recipe_file.load(self.recipe).engine

    @property
    def url(self) -> str:
        """Where clients call it."""
        return f"http://{self.address}:{self.port}"

    def ask(self) -> tuple[str, str]:
        """Return the answer to QUESTION, and the release that gave it. Raises requests' exceptions."""
        body = {"model": self.service, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 16}
        reply = requests.post(f"{self.url}/v1/chat/completions", json={**body, "temperature": 0}, timeout=60)
        reply.raise_for_status()
        return str(reply.json()["choices"][0]["message"]["content"]), reply.headers["x-sparkops-release"]

    def doctor(self) -> Any:
        """Run doctor as a step whose findings are figures. Returns its answer."""
        with self.evidence.step("doctor", ("sparkops", "doctor", "--json")) as step:
            ran = self.cli("doctor", "--json")
            self.evidence.keep("doctor.json", ran.out)
            step.figures += [f"{finding['code']}: {finding['problem']}" for finding in ran.json["findings"]]
        return ran.json

    def check_answer(self, title: str) -> str:
        """Ask as a step. Returns the release that answered. Raises AssertionError for a wrong answer."""
        with self.evidence.step(title) as step:
            answer, release = self.ask()
            step.figures.append(f"{QUESTION} {answer} ({release})")
            assert ANSWER in answer, answer
        return release

    @contextmanager
    def loaded(self, title: str, **more: Any) -> Iterator[Traffic]:
        """Requests and streams meanwhile, none of which may fail."""
        with Traffic(self.url, self.service, **{**LOAD, **more}) as load:
            load.wait_for(10, 60)
            yield load
            load.wait_for(load.report().good + 20, 60)
        with self.evidence.step(f"requests during: {title}") as step:
            report = load.report()
            step.figures.append(str(report))
            assert (report.failures, report.refusals) == ({}, 0), report.examples

    def answers_again(self, title: str, patience_s: float) -> None:
        """Measure how long the service gives no right answer. Raises AssertionError after `patience_s`."""
        with self.evidence.step(title) as step:
            began = time.monotonic()
            while not self.answers():
                assert time.monotonic() - began < patience_s, f"no answer within {patience_s:g} s"
                time.sleep(0.5)
            step.figures.append(f"answered after {time.monotonic() - began:.1f} s")

    def answers(self) -> bool:
        """Return whether the service gives a right answer now."""
        try:
            return ANSWER in self.ask()[0]
        except requests.RequestException:
            return False


def figures(ran: Ran) -> list[str]:
    """Return mode and seconds of each phase from the answer of a deploy; nothing from other answers."""
    try:
        answer = json.loads(ran.out)
    except ValueError:
        return []
    if not isinstance(answer, dict) or not answer.get("seconds"):
        return []
    phases = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in answer["seconds"].items())
    return [f"{answer.get('mode')}: {phases}"]


def last(text: str) -> str:
    """Return the last lines of an output, in one."""
    return " / ".join(text.strip().splitlines()[-4:])


def reason(text: str) -> str:
    """Return why a deploy failed: its error and the next step."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    begin = max((number for number, line in enumerate(lines) if line.startswith("sparkops: ")), default=0)
    return " / ".join(lines[begin:][:4])


def slug(title: str) -> str:
    """Return a title as a part of a file name."""
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())[:60]
