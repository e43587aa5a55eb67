"""`make demo`: from nothing to a service, a swap under load and a rollback, with every command shown.

Nothing is simulated: two nodes with Docker Engines of their own, the real vLLM, and a count of all requests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import requests

from sparkops.config import inventory
from sparkops.errors import PlanRefused
from sparkops.traffic.generator import Traffic
from sparkops.traffic.report import TrafficReport
from tests import checkpoints
from tests.fleet.fleet import Fleet as TestFleet
from tests.real.service import GATEWAY, write_inventory

RECIPE = "tests/tiny-demo.yaml"
SERVICE, PORT, MODEL = "tiny", 8000, "tiny-qwen3"
FIRST = ("deploy", RECIPE, "--node", "node-2")
SECOND = ("deploy", RECIPE, "--node", "node-1", "--set", "args.max-num-seqs=16")
"""Another release from the same image, so that nothing is built for it."""
LOAD = {"rate": 2, "streams": 2, "stream_pause_s": 3, "stream_tokens": 100, "timeout_s": 120}
QUESTION = "What is the capital of France?"
ROOT = Path(__file__).parent.parent
SPARKOPS = str(Path(sys.executable).parent / "sparkops")


@dataclass
class Story:
    """What is printed: parts with their times, commands as typed and what they print."""

    where: str = ""
    """The inventory, relative to the checkout."""
    began: list[tuple[str, float]] = field(default_factory=list)
    """Title of each part and when it began (monotonic seconds)."""

    def part(self, title: str) -> None:
        """Begin a part."""
        self.began.append((title, time.monotonic()))
        print(f"\n== {title}", flush=True)

    def run(self, *argv: str) -> int:
        """Run sparkops as a user would, and return its exit code."""
        command = ["sparkops", "--inventory", self.where, *argv]
        print(f"$ {' '.join(command)}", flush=True)
        return subprocess.run([SPARKOPS, *command[1:]], cwd=ROOT, check=False).returncode

    def sparkops(self, *argv: str) -> None:
        """Run sparkops; the demo ends where it fails."""
        if code := self.run(*argv):
            sys.exit(code)

    def tag(self, *argv: str) -> str:
        """Build an image and return its tag."""
        command = ["sparkops", "--inventory", self.where, *argv, "--json"]
        print(f"$ {' '.join(command)}", flush=True)
        built = subprocess.run([SPARKOPS, *command[1:]], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        if built.returncode:
            sys.exit(built.returncode)
        return str(json.loads(built.stdout)["tag"])


def main() -> int:
    """Build, deploy, swap under load, roll back; 1 if a request failed, an answer was wrong or status is not clean."""
    story = Story()
    address = prepare(story)
    story.part("the first release is deployed on node-2, behind the gateway on node-1")
    first(story)
    answer = ask(f"http://{address}:{PORT}", SERVICE)
    print(f"{QUESTION} {answer}")
    counted = swap_and_return(story, f"http://{address}:{PORT}")
    story.part("what has happened")
    looks = story.run("status"), story.run("history", SERVICE)
    story.part("the end")
    print("\n".join([*requests_lines(counted), *times_lines(story.began), *next_lines(story.where)]))
    return int(any(looks) or "Paris" not in answer or failed(counted["all"]) > 0)


def prepare(story: Story) -> str:
    """Make nodes, image and model. Returns the address of the gateway's node."""
    story.part("two nodes, each with its own Docker Engine and sshd")
    nodes = TestFleet.up(2)
    home = nodes.home / "demo"
    home.mkdir(exist_ok=True)
    file = write_inventory(nodes, home, lambda data: data.update(gateway={"node": GATEWAY, "port": PORT}))
    story.where = str(file.relative_to(ROOT))

    story.part("the real vLLM image, built on both nodes")
    tag = story.tag("build", RECIPE)

    story.part("a model of 0.6 MB, trained in that image and copied to the nodes")
    fleet = inventory.load(file)
    checkpoint = checkpoints.make(fleet, "node-1", tag, nodes.home / "checkpoints")
    for name in fleet.nodes:
        checkpoints.copy(fleet, name, checkpoint, MODEL)
        print(f"{name}: {fleet.nodes[name].model_dir}/{MODEL}")
    return fleet.nodes[GATEWAY].address


def first(story: Story) -> None:
    """Deploy. What an older version has left on the nodes without a gateway is stopped first."""
    code = story.run(*FIRST)
    if code == PlanRefused.exit_code:
        story.sparkops("stop", SERVICE)
        story.sparkops(*FIRST)
    elif code:
        sys.exit(code)


def swap_and_return(story: Story, url: str) -> dict[str, TrafficReport]:
    """Replace the release and go back while requests run. Returns what became of them, by part."""
    counted: dict[str, TrafficReport] = {}
    with Traffic(url, SERVICE, **LOAD) as load:  # type: ignore[arg-type]
        load.wait_for(5, 60)
        story.part("a second release replaces it on node-1, while requests and streams run through the gateway")
        with window(load, counted, "swap"):
            story.sparkops(*SECOND)
        story.part("the rollback: the first release still runs, so it takes one switch")
        with window(load, counted, "rollback"):
            story.sparkops("rollback", SERVICE)
    counted["all"] = load.report()
    return counted


@contextmanager
def window(load: Traffic, counted: dict[str, TrafficReport], name: str) -> Iterator[None]:
    """Count the requests of a part, until ten more have been answered after it."""
    began_s = time.monotonic()
    yield
    load.wait_for(load.report().good + 10, 60)
    counted[name] = load.report((began_s, time.monotonic()))


def ask(url: str, model: str) -> str:
    """One chat completion, from outside the nodes."""
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 32, "temperature": 0}
    reply = requests.post(f"{url}/v1/chat/completions", json=body, timeout=60)
    reply.raise_for_status()
    return str(reply.json()["choices"][0]["message"]["content"])


def failed(report: TrafficReport) -> int:
    """Requests that got no whole and right answer, refusals included."""
    return report.refusals + sum(report.failures.values())


def requests_lines(counted: dict[str, TrafficReport]) -> Iterator[str]:
    """Yield how many requests were answered and failed, and which release answered."""
    yield "requests through the gateway"
    for name, report in counted.items():
        slowest = f", longest time without an answer {report.longest_gap_s:.1f} s"
        yield f"{report.good:6} answered, {failed(report)} failed: {name}{slowest}"
    for release, count in counted["all"].releases.items():
        yield f"{count:6} answered by {release}"
    for failure in counted["all"].examples:
        yield f"failed: {failure.kind}: {failure.reason}: {failure.detail}"


def times_lines(began: list[tuple[str, float]]) -> Iterator[str]:
    """Yield how long each part took; the last one only ends the one before it."""
    yield "\ntimes"
    for (title, begin_s), (_, end_s) in pairwise(began):
        yield f"{end_s - begin_s:6.1f} s  {title}"
    yield f"{began[-1][1] - began[0][1]:6.1f} s  all"


def next_lines(where: str) -> Iterator[str]:
    """Yield what to try next."""
    yield f"""
next
  bin=.venv/bin/sparkops; export SPARKOPS_INVENTORY={where}
  $bin status                      what runs where
  $bin deploy {RECIPE} --dry-run --set args.max-num-seqs=8
                                   every effect of another swap, with its command
  $bin logs {SERVICE} --follow          what the engine says
  $bin stop {SERVICE}                   stop the service
  make demo                        again: it uses what exists
  make fleet-down                  remove the nodes and all they hold"""


if __name__ == "__main__":
    sys.exit(main())
