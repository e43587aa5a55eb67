"""`make demo`: the main job on real parts, from nothing to an answer, with every command shown."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import requests

from sparkops.config import inventory
from tests import checkpoints
from tests.fleet.fleet import Fleet as TestFleet

RECIPE = "recipes/tiny-qwen3-cpu.yaml"
MODEL = "tiny-qwen3"
REFUSED = 5
QUESTION = "What is the capital of France?"
ROOT = Path(__file__).parent.parent
SPARKOPS = str(Path(sys.executable).parent / "sparkops")


def main() -> int:
    """Fleet, image, model, deploy, question, status."""
    began = time.monotonic()
    times: list[tuple[str, float]] = []

    def part(title: str) -> None:
        times.append((title, time.monotonic()))
        print(f"\n== {title}", flush=True)

    part("two nodes, each with its own Docker Engine and sshd")
    nodes = TestFleet.up(2)
    where = str(nodes.inventory.relative_to(ROOT))

    part("the real vLLM image, built on both nodes")
    built = json.loads(sparkops(where, "build", RECIPE, "--json"))

    part("a model of 0.6 MB, trained in that image and copied to the nodes")
    fleet = inventory.load(nodes.inventory)
    made = checkpoints.make(fleet, "node-1", built["tag"], nodes.home / "checkpoints")
    for name in fleet.nodes:
        checkpoints.copy(fleet, name, made, MODEL)
        print(f"{name}: {fleet.nodes[name].model_dir}/{MODEL}")

    part("the deploy: start, watch, check a known answer")
    done = deploy(where)

    part(f"the OpenAI API of each node is asked: {QUESTION}")
    answers = [ask(fleet.nodes[each["node"]].address, each["port"], done["service"]) for each in done["replicas"]]
    for each, answer in zip(done["replicas"], answers, strict=True):
        print(f"{each['node']}: {answer}")

    part("status")
    print(sparkops(where, "status"))
    times.append(("", time.monotonic()))
    summary(times, time.monotonic() - began, where)
    return 0 if all("Paris" in answer for answer in answers) else 1


def deploy(where: str) -> Any:
    """Deploy to both nodes. An older release that an earlier demo left there is stopped first."""
    argv = ("deploy", RECIPE, "--node", "node-1", "--node", "node-2", "--json")
    code, out = run(where, *argv)
    if code == REFUSED:
        sparkops(where, "stop", "tiny")
        out = sparkops(where, *argv)
    elif code:
        sys.exit(code)
    return json.loads(out)


def sparkops(where: str, *argv: str) -> str:
    """Run sparkops; the demo ends where it fails."""
    code, out = run(where, *argv)
    if code:
        sys.exit(code)
    return out


def run(where: str, *argv: str) -> tuple[int, str]:
    """Run sparkops as a user would: its progress goes straight to the terminal."""
    command = ["sparkops", "--inventory", where, *argv]
    print(f"$ {' '.join(command)}", flush=True)
    ran = subprocess.run([SPARKOPS, *command[1:]], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    return ran.returncode, ran.stdout


def ask(address: str, port: int, model: str) -> str:
    """One chat completion, from outside the node."""
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 32, "temperature": 0}
    reply = requests.post(f"http://{address}:{port}/v1/chat/completions", json=body, timeout=60)
    reply.raise_for_status()
    return str(reply.json()["choices"][0]["message"]["content"])


def summary(times: list[tuple[str, float]], total_s: float, where: str) -> None:
    """How long each part took, and what to do next."""
    print("== times")
    for (title, begin), (_, end) in pairwise(times):
        print(f"{end - begin:6.1f} s  {title}")
    print(f"{total_s:6.1f} s  all")
    print(f"""
next
  bin=.venv/bin/sparkops; export SPARKOPS_INVENTORY={where}
  $bin status                     what runs where
  $bin logs tiny --follow         what the engines say
  $bin build {RECIPE}             again: there is nothing to do
  $bin stop tiny                  stop both replicas
  make demo                       again: it uses what is there
  make fleet-down                 remove the nodes and all they hold""")


if __name__ == "__main__":
    sys.exit(main())
