"""`plan`, `up` and `deploy` on this machine: what they refuse first, and the one address that they print; `logs`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.config.release import Rank
from sparkops.names import Slot
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.cli.logs import marked, served
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, Phase, RankSpec, Replica
from tests.examples import RECIPE, container, release
from tests.fleet_unit.machine import inspect
from tests.hub_server import COMMIT, hub
from tests.operator.cli.here import INVENTORY, Here, install
from tests.operator.deploy.memory.configs import TINY
from tests.operator.deploy.swaps import NEW, OLD, at
from tests.safetensors import checkpoint, tensor

pytestmark = [pytest.mark.local, pytest.mark.timeout(180)]  # several processes, while other tests have the cores

Install = Callable[..., Here]
ONE_ADDRESS = INVENTORY.replace("address: 127.0.0.1}", "address: 127.0.0.1, port: 8000}")
CHAT = Service("chat", 8100)
"""The service of the recipe, with a port of its own."""
HUGE_GIB = 1e5
"""More than the node has."""


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Install]:
    """sparkops with this machine as its only node, and a recipe that claims so many GiB."""
    with ExitStack() as stack:

        def install_here(claim_gib: float = 0.1, **more: Any) -> Here:
            write_recipe(tmp_path, claim_gib)
            return stack.enter_context(install(tmp_path, inventory=ONE_ADDRESS, **more))

        yield install_here


def write_recipe(directory: Path, claim_gib: float) -> None:
    image = {"template": "stand-in", "base": "debian:bookworm-slim"}
    changes: dict[str, Any] = {"engine": "stand-in", "image": image, "serve": {"port": CHAT.port}}
    memory = {"claim_gib": claim_gib, "basis": "a guess"}
    (directory / "q.yaml").write_text(json.dumps({**RECIPE, **changes, "memory": memory}))


def test_up_refuses_what_does_not_fit_before_it_builds(installed: Install) -> None:
    here = installed(HUGE_GIB, built=False)

    ran, planned = here("up", "q.yaml"), here("plan", "q.yaml")

    assert (ran.code, planned.code) == (5, 5)
    assert f"{HUGE_GIB:g} GiB" in ran.err
    arithmetic, same = (
        [
            re.sub(r"[\d.]+ GiB", "x GiB", line) for line in text.splitlines() if "GiB" in line
        ]  # memory changes meanwhile
        for text in (planned.err, ran.err)
    )
    assert arithmetic
    assert same == arithmetic
    assert "build" not in ran.err


def test_a_dry_run_of_up_shows_where_the_release_would_run(installed: Install) -> None:
    here = installed(built=False)

    shown, as_json = here("up", "q.yaml", "--dry-run"), here("up", "q.yaml", "--dry-run", "--json")

    assert (shown.code, as_json.code) == (0, 0)
    assert "image: build or copy to here" in shown.out
    assert "0.1 claimed" in shown.out
    assert as_json.json["missing"] == ["image: build or copy to here"]
    assert (as_json.json["service"], as_json.json["mode"], as_json.json["effects"]) == ("chat", "first", [])


def test_up_takes_values_of_the_recipe(installed: Install) -> None:
    ran = installed(built=False)("up", "q.yaml", "--set", f"memory.claim_gib={HUGE_GIB:g}")

    assert ran.code == 5
    assert f"{HUGE_GIB:g} GiB" in ran.err


def test_plan_prints_json_like_a_dry_run_of_deploy(installed: Install) -> None:
    here = installed()

    planned, dry = here("plan", "q.yaml", "--json"), here("deploy", "q.yaml", "--dry-run", "--json")

    assert planned.code == 0
    assert planned.json == dry.json
    assert (planned.json["service"], planned.json["mode"]) == ("chat", "first")
    assert planned.json["effects"][0]["phase"] == "prepare"


def test_a_plan_without_weights_is_refused_after_the_memory_that_the_hub_describes(tmp_path: Path) -> None:
    shards = {"model.safetensors": {"model.layers.0.mlp.up_proj.weight": tensor("BF16", [512, 1024])}}
    checkpoint(tmp_path / "at-hub", shards, TINY)
    (tmp_path / "models").mkdir()
    serve = {"args": {"max-model-len": 1024}, "env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}
    memory = {"claim_gib": 0.1, "basis": "a guess"}
    (tmp_path / "q.yaml").write_text(json.dumps({**RECIPE, "serve": serve, "memory": memory}))
    inventory = ONE_ADDRESS.replace("{transport: local}", f"{{transport: local, model_dir: {tmp_path}/models}}")

    with install(tmp_path, inventory=inventory) as here, hub({"org/q": tmp_path / "at-hub"}) as served:
        planned = here("plan", "q.yaml", "--endpoint", served.url)
        unreachable = here("plan", "q.yaml", "--endpoint", "http://127.0.0.1:9")

    assert (planned.code, unreachable.code) == (5, 5)
    assert planned.out.startswith("memory, predicted:\n  here: fits an empty node\n")
    assert f"(org/q at the hub, {COMMIT[:12]})" in planned.out
    assert "needs: " in planned.err
    assert "memory unknown: " in unreachable.out
    assert "the hub cannot be reached from this node" in unreachable.out


@pytest.mark.parametrize("verb", ["deploy", "up"])
def test_a_detached_deploy_ends_once_it_is_accepted_with_the_one_address(installed: Install, verb: str) -> None:
    here = installed(service=CHAT)

    ran = here(verb, "q.yaml", "--detach")

    assert ran.code == 0
    assert ran.err.splitlines() == [
        "chat: accepted; the fleet continues without this client",
        "  next: sparkops status chat --follow",
        "  next: sparkops rollback chat",
        "  http://127.0.0.1:8000/v1   model: chat",
    ]
    assert here.peer.requests("events") == []
    journal = here.peer.journal("chat")
    assert journal is not None
    assert journal.swap is not None, "nobody waits for its end"


def test_up_prints_its_result_as_one_json_object(installed: Install) -> None:
    ran = installed(service=CHAT)("up", "q.yaml", "--json")

    assert ran.code == 0
    assert (ran.json["service"], ran.json["result"], ran.json["exit_code"]) == ("chat", "done", 0)
    assert "  http://127.0.0.1:8000/v1   model: chat" in ran.err.splitlines()
    assert "curl http://127.0.0.1:8000/v1/chat/completions " in ran.err, "the request to try is no data here"


ENGINE = inspect("q-blue-r0", Rank(release(), Slot.BLUE, "here").labels, "running")


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (("--since", "10m", "--timestamps"), "--timestamps --since=10m --tail=all"),
        (("--since", "2026-11-25", "--tail", "5"), "--since=2026-11-25 --tail=5"),
        (("--since", "2026-11-25T09:30"), "--since=2026-11-25T09:30 --tail=all"),
        (("--since", "1795305024.5"), "--since=1795305024.5 --tail=all"),
        (("--timestamps",), "--timestamps --tail=all"),
    ],
    ids=["a span", "a date", "a time", "a Unix time", "no time"],
)
def test_logs_ask_docker_for_the_lines_since_a_time(installed: Install, options: tuple[str, ...], asked: str) -> None:
    here = installed(containers={"q-blue-r0": ENGINE}, answers={f'"logs {asked} q-blue-r0"': "a line of the log"})

    ran = here("logs", "chat", *options)

    assert (ran.code, ran.out, ran.err) == (0, "a line of the log\n", "")


IN_SWAP = Journal("chat", "n1", active=at(OLD, Slot.BLUE, "n1")).begun(
    "i", Mode.ACROSS, at(NEW, Slot.GREEN, "n2"), automatic=True
)


def test_logs_are_those_of_the_active_release_and_in_a_swap_of_the_new_one() -> None:
    old, new = (rank.place for item in IN_SWAP.deployments for rank in item.ranks)
    warm = replace(IN_SWAP, swap=IN_SWAP.swap and replace(IN_SWAP.swap, phase=Phase.RETIRE))
    older = Journal("chat", "n3", term=0, active=at(NEW, Slot.GREEN, "n3"))

    assert served([older, IN_SWAP]) == {old, new}
    assert served([warm]) == {old}
    assert served([]) == frozenset()


def test_lines_of_several_logs_begin_with_node_and_release() -> None:
    one, other = (container(Rank(of, slot, "n1")) for of, slot in ((OLD, Slot.BLUE), (NEW, Slot.GREEN)))
    away = replace(one, node="n2")

    assert [*marked([one, away])] == ["n1 | ", "n2 | "]
    assert [*marked([one, other])] == [f"n1 {OLD.id} blue | ", f"n1 {NEW.id} green | "]


@pytest.mark.parametrize("every", [False, True])
def test_logs_leave_out_the_other_releases_unless_they_are_asked_for(installed: Install, *, every: bool) -> None:
    release_ = release()
    stopped = Rank(release_, Slot.GREEN, "here")
    containers = {
        "q-blue-r0": ENGINE,
        "q-green-r0": inspect("q-green-r0", stopped.labels, "exited"),
    }
    answers = {f'"logs --tail=all {name}"': f"a line of {name}" for name in containers}
    here = installed(containers=containers, answers=answers)
    active = Deployment(release_.id, Slot.BLUE, (Replica((RankSpec("here", "q-blue-r0"),)),))
    here.peer.write(Journal("chat", "here", revision=1, active=active))

    ran = here("logs", "chat", *(["--all"] if every else []))

    assert ran.code == 0, ran.err
    lines = sorted(ran.out.splitlines())
    assert lines == (
        ["here q-blue-r0 | a line of q-blue-r0", "here q-green-r0 | a line of q-green-r0"]
        if every
        else ["a line of q-blue-r0"]
    )


WRONG = [
    ("plan", "q.yaml"),
    ("deploy", "q.yaml"),
    ("rollback", "chat"),
    ("stop", "chat"),
    ("node", "drain", "here", "--dry-run"),
]


@pytest.mark.parametrize("argv", WRONG, ids=" ".join)
def test_an_inventory_with_the_wrong_gateway_is_refused_first_with_the_node_that_leads(
    installed: Install, argv: tuple[str, ...]
) -> None:
    here = installed()
    copies = {"leader": "node-7", "journals": [], "copies": [], "term": 0, "heard_ago_s": 1.0, "problems": []}
    (here.peer.directory / "copies").write_text(json.dumps(copies))

    ran = here(*argv)

    assert (ran.code, ran.out) == (5, "")
    assert ran.err.splitlines() == [
        "sparkops: node-7 leads this fleet: gateway.node is here, expected node-7",
        "  next: Set `gateway.node: node-7` in the inventory; if the gateway on node-7 is lost: "
        "sparkops gateway rebuild here",
    ]
    assert not here.peer.requests("intend")


@pytest.mark.parametrize("argv", WRONG[:3], ids=" ".join)
def test_a_gateway_whose_node_is_not_reached_is_named_and_nothing_is_sent(
    installed: Install, argv: tuple[str, ...]
) -> None:
    here = installed()
    nodes = "nodes:\n  here: {transport: local}\n  away: {address: 127.0.0.9, user: ops, port: 9}\n"
    (here.directory / "inventory.yaml").write_text(f"{nodes}gateway: {{node: away}}\n")

    ran = here(*argv)

    assert ran.code == 5
    assert "away: cannot connect to ops@127.0.0.9:9: " in ran.err
    assert "stopped" not in ran.err
    assert not here.peer.requests("intend")


@pytest.mark.parametrize("options", [["--since", "yesterday"], ["--since", "10 minutes"], ["--since", ""]])
def test_logs_refuse_what_is_no_time(installed: Install, options: list[str]) -> None:
    ran = installed()("logs", "chat", *options)

    assert ran.code == 2
    assert "--since: not a time: " in ran.err
    assert "  next: Pass a time span such as 90s, 10m or 1h30m" in ran.err
