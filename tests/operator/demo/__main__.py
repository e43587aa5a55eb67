"""`make demo`: from nothing to a service, a swap under load and a rollback, with every command shown.

Nothing is simulated: two nodes with Docker Engines of their own, the real vLLM, and a count of all requests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import requests

from sparkops.config import inventory
from sparkops.operator.demo.counting import counting
from sparkops.operator.demo.scene import VLLM
from sparkops.operator.demo.screen import DemoResult, Opening, ending, opening
from sparkops.operator.demo.traffic.generator import Traffic
from sparkops.operator.demo.traffic.report import TrafficReport
from tests import checkpoints
from tests.fleet.fleet import Fleet as TestFleet
from tests.places import ROOT
from tests.real.service import GATEWAY, write_inventory

RECIPE = "tests/tiny-demo.yaml"
SERVICE, PORT, MODEL = "tiny", 8000, "tiny-qwen3"
FIRST = ("deploy", RECIPE, "--node", "node-2")
SECOND = ("deploy", RECIPE, "--node", "node-1", "--set", "args.max-num-seqs=16")
"""Another release from the same image, so that nothing is built for it."""
QUESTION = "What is the capital of France?"
OPENING = Opening(
    title="make demo: replace a running vLLM under load, with the parts of a real fleet, and count lost requests",
    steps=(
        "start two nodes: containers, each with its own Docker Engine and sshd",
        "build the real vLLM for CPUs on both, and train a model of 0.6 MB",
        "deploy a release on node-2, behind the gateway on node-1",
        "replace it by a second release on node-1 while clients send requests, then roll back",
        "print what was lost; the nodes stay until `make fleet-down`",
    ),
    facts={
        "Rights": ("as root, or in the group docker; the nodes have nearly all capabilities of this machine",),
        "Files": (".fleet and .venv in this checkout; images and volumes of Docker",),
        "Time": ("about eight minutes from nothing on two x86-64 cores, then six",),
    },
)
SPARKOPS = str(Path(sys.executable).parent / "sparkops")


@dataclass
class Story:
    """What is printed: parts with their times, commands as typed and what they print."""

    where: str = ""
    """The inventory, relative to the checkout."""
    began: list[tuple[str, float]] = field(default_factory=list)
    """Title of each part and when it began (monotonic seconds)."""

    def part(self, title: str, words: str = "") -> None:
        """Begin a part."""
        self.began.append((title, time.monotonic()))
        print(f"\n== {title}{': ' if words else ''}{words}", flush=True)

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
    print("\n".join(opening(OPENING)), flush=True)
    story = Story()
    address = prepare(story)
    story.part("first release", "deployed on node-2, behind the gateway on node-1")
    first(story)
    answer = ask(f"http://{address}:{PORT}", SERVICE)
    print(f"{QUESTION} {answer}")
    parts = swap_and_return(story, f"http://{address}:{PORT}")
    story.part("status and history")
    looks = story.run("status"), story.run("history", SERVICE)
    story.part("what has happened")
    result = DemoResult(SERVICE, "vLLM", parts, story.began)
    print("\n".join(ending(result, further(story.where))))
    return int(any(looks) or "Paris" not in answer or result.total.lost > 0)


def prepare(story: Story) -> str:
    """Make nodes, image and model. Returns the address of the gateway's node."""
    story.part("nodes", "two containers, each with its own Docker Engine and sshd")
    nodes = TestFleet.up(2)
    home = nodes.home / "demo"
    home.mkdir(exist_ok=True)
    file = write_inventory(nodes, home, lambda data: data.update(gateway={"node": GATEWAY, "port": PORT}))
    story.where = str(file.relative_to(ROOT))

    story.part("image", "the real vLLM, built on both nodes")
    tag = story.tag("build", RECIPE)

    story.part("model", "0.6 MB, trained in that image and copied to the nodes")
    fleet = inventory.load(file)
    checkpoints.provide(fleet, tag, nodes.home / "checkpoints", MODEL)
    for name in fleet.nodes:
        print(f"{name}: {fleet.nodes[name].model_dir}/{MODEL}")
    return fleet.nodes[GATEWAY].address


def first(story: Story) -> None:
    """Deploy."""
    story.sparkops(*FIRST)


def swap_and_return(story: Story, url: str) -> Mapping[str, TrafficReport]:
    """Replace the release and go back while requests run. Returns what became of them, by part."""
    with counting(Traffic(url, SERVICE, **VLLM.traffic)) as counted:
        story.part("swap under load", "a second release on node-1; requests and streams go through the gateway")
        with counted.part("swap"):
            story.sparkops(*SECOND)
        story.part("rollback under load", "the first release still runs, so it takes one switch")
        with counted.part("rollback"):
            story.sparkops("rollback", SERVICE)
    return counted.parts


def ask(url: str, model: str) -> str:
    """One chat completion, from outside the nodes."""
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 32, "temperature": 0}
    reply = requests.post(f"{url}/v1/chat/completions", json=body, timeout=60)
    reply.raise_for_status()
    return str(reply.json()["choices"][0]["message"]["content"])


def further(where: str) -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return what to try next, and how to remove it."""
    return {
        "Try next": [
            (f"export PATH=$PWD/.venv/bin:$PATH SPARKOPS_INVENTORY={where}", "let sparkops use these nodes"),
            ("sparkops status", "what runs where"),
            (f"sparkops deploy {RECIPE} --dry-run --set args.max-num-seqs=8", "another swap: effects and commands"),
            (f"sparkops logs {SERVICE} --follow", "the engine's log"),
            ("make demo", "again; it uses what exists"),
        ],
        "Remove": [("make fleet-down", "the nodes and all they hold")],
    }


if __name__ == "__main__":
    sys.exit(main())
