"""A new engine is one module in engines/, with its import and its entry in the registry: nothing else changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.places import ROOT

REGISTRY = "engines/__init__.py"
PROGRAM = """
import json
from sparkops.config import opt_in
from sparkops.config.recipe import Recipe
from sparkops.config.startup import Startup
from sparkops.operator.deploy.fitting import fits
from sparkops.node.docker import commands, ranks
from sparkops.engines import ENGINES, load, metrics
from sparkops.engines.launch import Seat
from sparkops.errors import SparkopsError
from sparkops.serving.memory.bound import bound
from sparkops.names import Slot
from sparkops.operator.fleet.network import environment
from sparkops.config.release import Rank
from sparkops.serving.startup import causes
from sparkops.serving.startup.verdict import Line, Sample, Watch, advance, explanation
from sparkops.operator.status import starting
from tests.examples import IMAGE_ID, node, rank, recipe, release

image = {"torch": None, "vllm": None}
args = {"context": 4096, "grammar-file": "/x"}
of = recipe(engine="toy", image=image, serve={"args": args})
page = "toy:running 1\\ntoy:tokens_total 5\\n"
sums = {"toy:running": 1.0, "toy:tokens_total": 5.0}
lines = (Line(0.5, "toy loads"), Line(0.6, "toy gives up: RAM"))
watch = advance(Watch(Startup(), ENGINES["toy"].log, tuple(causes.of("toy"))), Sample(1.0, lines))
two = release(engine="toy", image=image, serve={"tensor_parallel": 2, "executor": "mp"})
second = ranks.program(Rank(two, Slot.BLUE, "n2", 1), "/models", Seat("10.0.0.2", "10.0.0.1"))
try:
    fits(None, of)
except SparkopsError as error:
    unknown = str(error)
try:
    recipe(engine="toy", image=image, serve={"tensor_parallel": 2, "executor": "ray"})
except ValueError as error:
    refused = str(error)
gpu = recipe(engine="toy", image={"torch": {"version": "2.11.0", "backend": "cu130"}, "vllm": None})
print(json.dumps({
    "argv": commands.create(rank(engine="toy", image=image, serve={"args": args}), node(), IMAGE_ID, jobs=1).argv,
    "schema": Recipe.model_json_schema()["properties"]["engine"]["enum"],
    "refusals": [problem for _, problem in opt_in.refusals(of.serve, of.engine)],
    "load": [metrics.parse(page).running, load.read(sums).generated, metrics.steps(page), load.steps(sums)],
    "meanings": load.by_meaning(sums),
    "read": set(sums) <= set(load.METRICS),
    "stage": watch.stage,
    "failure": watch.failure,
    "cause": explanation(watch).advice,
    "starting": starting.stage("2026-11-21T00:17:39.184791030Z toy loads\\n"),
    "second": second.arguments[-2:],
    "address": environment.OWN_ADDRESS,
    "unknown": unknown,
    "refused": refused,
    "bound": [bound(gpu, 100.0, 5.0).flag, bound(gpu, 100.0, 5.0).gib],
}))
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a copy of the package with the toy knows of it."""
    copy = tmp_path_factory.mktemp("toy")
    shutil.copytree(ROOT / "sparkops", copy / "sparkops", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests/engines/toy.py", copy / "sparkops/engines/toy.py")
    registry = copy / "sparkops" / REGISTRY
    before = registry.read_text()
    vllm = "from sparkops.engines.vllm import"
    added = before.replace(vllm, f"from sparkops.engines.toy import TOY\n{vllm}", 1).replace(
        '    "atlas": ATLAS,\n', '    "atlas": ATLAS,\n    "toy": TOY,\n'
    )
    assert len(set(added.splitlines()) - set(before.splitlines())) == 2, "its import, and the line of the registry"
    registry.write_text(added)
    env = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"}
    ran = subprocess.run(
        (sys.executable, "-c", PROGRAM), check=False, env=env, cwd=copy, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def test_its_container_starts_its_program_with_its_flags(toy: dict[str, Any]) -> None:
    argv = toy["argv"]
    image = argv.index("--entrypoint=toy-server") + 1

    assert "--env=TOY_HOME=/home/engine" in argv
    words = "--model /models/q --host 0.0.0.0 --port 8001 --alias chat --context 4096 --grammar-file /x"
    assert argv[image + 1 :] == words.split()


def test_a_recipe_may_name_it(toy: dict[str, Any]) -> None:
    assert "toy" in toy["schema"]


def test_what_its_flags_do_needs_allow(toy: dict[str, Any]) -> None:
    expected = "not in serve.allow, expected `allow: [grammar-file]`"

    assert toy["refusals"] == [f"grammar-file reads a file or directory named in its value; {expected}"]


def test_its_figures_are_read_from_its_page(toy: dict[str, Any]) -> None:
    assert toy["load"] == [1, 5, [5.0], [5.0]]
    assert toy["meanings"] == {"running": 1.0, "generated": 5.0}
    assert toy["read"]


def test_its_log_has_its_stages_and_causes(toy: dict[str, Any]) -> None:
    assert (toy["stage"], toy["failure"]) == ("loading weights", "toy gives up: RAM")
    assert toy["cause"] == ["the toy lacks RAM", "Give it RAM."]
    assert toy["starting"] == [False, "loading weights"]


def test_several_ranks_and_memory_are_as_it_declares(toy: dict[str, Any]) -> None:
    assert toy["second"] == ["--meet=10.0.0.1:8003", "--rank=1/2"]
    assert "TOY_ADDRESS" in toy["address"]
    assert "expected mp, which joins ranks of the engine toy" in toy["refused"]
    assert toy["bound"] == ["memory-share", 55.0]
    assert "no rules for the engine toy, only for vllm" in toy["unknown"]
