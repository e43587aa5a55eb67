"""What leaves a node with sparkops, in which order and with which commands, and what keeps it there."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.config import assets
from sparkops.errors import NeedsOperator
from sparkops.operator.build.weights.checkpoint import Checkpoint, Origin
from sparkops.operator.deploy.prune.stored import Stored
from sparkops.operator.deploy.prune.uninstall import Extent, Installed, Uninstall, Uses, agents, plan, refusals
from sparkops.serving.service_state import ServiceState
from sparkops.swap.fleet_state import Report
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment
from tests.operator.deploy.prune.test_plan import CACHE, MARK, TAG, at, engine, image

STORED = Stored(
    "n1",
    engines=(engine("c1"),),
    images=(image(),),
    volumes=("mine", CACHE, "sparkops-gateway", "sparkops-state", MARK),
    used={"c1": "sha256:1", "sparkops-guard": "sha256:guard"},
)
OURS = Checkpoint("org/ours", {"model.safetensors": (70, 0)}, {}, origin=Origin("org/ours"))
THEIRS = Checkpoint("theirs", {"model.safetensors": (80, 0)}, {})
NODE = Installed(
    STORED,
    agents=("sparkops-guard", "sparkops-gateway"),
    guard_image="sha256:guard",
    run_exists=True,
    buildx="/home/ops/.docker/buildx",
    model_dir="/srv/models",
    checkpoints=(OURS, THEIRS),
)


def commands(planned: Uninstall) -> list[str]:
    return [str(removal) for removal in planned.removals]


def test_agents_go_first_then_engines_rules_images_and_volumes() -> None:
    in_guard = "docker run --rm --cap-drop=ALL --security-opt=no-new-privileges --read-only --pull=never"
    assert commands(plan(NODE, Extent())) == [
        "docker rm --force --volumes sparkops-guard",
        "docker rm --force --volumes sparkops-gateway",
        "docker rm --volumes c1",
        f"{in_guard} --network=host --cap-add=NET_ADMIN sha256:guard "
        "nft 'add table inet sparkops; delete table inet sparkops'",
        f"{in_guard} --network=none --volume=/run:/host sha256:guard rm -rf /host/sparkops",
        f"docker rmi {TAG}",
        f"docker volume rm {CACHE}",
        "docker volume rm sparkops-gateway",
        "docker volume rm sparkops-state",
        f"docker volume rm {MARK}",
    ]
    assert [str(removal) for removal in plan(NODE, Extent()).agents] == commands(plan(NODE, Extent()))[:2]


def test_model_files_and_the_build_cache_go_only_on_request() -> None:
    kept = [kept.name for kept in plan(NODE, Extent()).kept]
    everything = plan(NODE, Extent(weights=True, build_cache=True))

    assert kept == ["/srv/models/org/ours", "/srv/models/theirs"]
    assert commands(everything)[-5:] == [
        "env BUILDX_BUILDER=default docker builder prune --force --all",
        "rm -rf -- /home/ops/.docker/buildx",
        "find /home/ops/.docker -maxdepth 0 -type d -empty -delete",
        "rm -rf -- /srv/models/org/ours",
        "find /srv/models/org -maxdepth 0 -type d -empty -delete",
    ]
    assert (everything.weights, plan(NODE, Extent()).weights) == (70, 0)
    assert [kept.name for kept in everything.kept] == ["/srv/models/theirs"]


def test_a_directory_above_model_files_goes_if_it_is_empty_and_no_link(tmp_path: Path) -> None:
    for name in ("empty", "full", "other disk"):
        (tmp_path / name).mkdir()
    (tmp_path / "full/theirs").touch()
    (tmp_path / "link").symlink_to(tmp_path / "other disk")
    names = ("empty", "full", "link")
    node = replace(NODE, model_dir=str(tmp_path), checkpoints=tuple(replace(OURS, path=f"{name}/q") for name in names))
    above = [removal for removal in plan(node, Extent(weights=True)).removals if removal.argv[0] == "find"]

    assert [subprocess.run(removal.argv, check=False).returncode for removal in above] == [0, 0, 0]
    assert {entry.name for entry in tmp_path.iterdir()} == {"full", "link", "other disk"}


def test_the_name_of_an_unfinished_directory_does_not_make_it_one_of_sparkops() -> None:
    unfinished = (
        Checkpoint("a.partial", {}, {}, identity="pull org/a@1"),
        Checkpoint("b.partial", {}, {}),
        Checkpoint("c.replaced", {}, {}, origin=Origin("org/c")),
        Checkpoint("d.replaced", {}, {}),
    )
    planned = plan(replace(NODE, checkpoints=unfinished), Extent(weights=True))

    removed = [removal.argv[-1] for removal in planned.removals if removal.argv[0] == "rm"]
    assert removed == ["/srv/models/a.partial", "/srv/models/c.replaced"]
    assert [kept.name for kept in planned.kept] == ["/srv/models/b.partial", "/srv/models/d.replaced"]


def test_an_image_that_another_container_uses_stays_and_another_name_of_one_stays() -> None:
    used = replace(NODE, stored=replace(STORED, used={**STORED.used, "mine": "sha256:1"}))
    renamed = replace(NODE, stored=replace(STORED, images=(image(TAG, "mine:1"),)))

    assert f"docker rmi {TAG}" not in commands(plan(used, Extent()))
    assert ("used by mine", TAG) in [(kept.why, kept.name) for kept in plan(used, Extent()).kept]
    assert f"docker rmi {TAG}" in commands(plan(renamed, Extent()))


def test_without_an_image_of_the_guard_root_gets_the_commands() -> None:
    kept = {kept.name: kept.why for kept in plan(replace(NODE, guard_image=""), Extent()).kept}

    assert kept["table inet sparkops"].endswith("as root: nft 'add table inet sparkops; delete table inet sparkops'")
    assert kept["/run/sparkops"].endswith("as root: rm -r /run/sparkops")


def test_a_bare_node_has_nothing_to_remove() -> None:
    bare = plan(Installed(Stored("n1", volumes=("mine",), used={"mine": "sha256:9"})), Extent())

    assert (bare.removals, bare.kept) == ((), ())
    assert str(bare) == "n1: nothing of sparkops to remove"


def test_the_printed_plan_is_what_runs() -> None:
    planned = plan(NODE, Extent(), "n2")

    assert "the guard of n2 dismisses n1" in str(planned)
    assert [command for command in commands(planned) if command not in str(planned)] == []


SERVING = Journal("chat", "n1", ("n2",), active=at())
STOPPED = Journal("chat", "n1", ("n2",), stopped=tuple(at().ranks))


def state(journal: Journal, *reports: str) -> ServiceState:
    known = {node: Report(node, term=1, revision=1, boot="b") for node in reports}
    return ServiceState(journal, reports=known, missing=tuple({"n1", "n2"} - {*reports}))


def on(node: str) -> Installed:
    return Installed(Stored(node))


@pytest.mark.parametrize(
    ("node", "uses", "words"),
    [
        ("n1", Uses({"chat": state(SERVING, "n1")}), "n1: chat runs there"),
        ("n1", Uses({"chat": state(STOPPED, "n1")}), "n1: chat runs there"),
        ("n2", Uses({"chat": state(SERVING, "n1")}, leads=True), "n2: its guard leads chat"),
        ("n2", Uses({"chat": state(replace(STOPPED, stopping=True))}, leads=True), "n2: its guard leads chat"),
        ("n2", Uses({"chat": state(STOPPED)}, leads=True), "n2: chat is not known to have stopped"),
        ("n1", Uses(traffic=("chat",)), "n1: the gateway passes requests of chat"),
    ],
)
def test_what_serves_or_leads_is_not_removed(node: str, uses: Uses, words: str) -> None:
    [refusal] = refusals(on(node), uses)

    assert str(refusal).startswith(words)
    assert "sparkops stop chat" in str(refusal.next_step)


def test_a_running_engine_that_no_journal_names_is_not_removed() -> None:
    runs = engine("c1", state="running")

    [refusal] = refusals(Installed(replace(STORED, engines=(runs,))), Uses())
    assert str(refusal) == "n1: c1 runs"


def test_a_journal_that_cannot_be_read_needs_an_operator() -> None:
    [refusal] = refusals(on("n1"), Uses(unreadable=[NeedsOperator("chat: unreadable")]))

    assert refusal.exit_code == NeedsOperator.exit_code


def test_what_was_stopped_and_what_is_elsewhere_keeps_no_node() -> None:
    assert [*refusals(on("n2"), Uses({"chat": state(SERVING, "n1", "n2")}))] == []
    assert [*refusals(on("n1"), Uses({"chat": state(replace(STOPPED, stopped=()), "n1")}))] == []
    assert [*refusals(on("n2"), Uses({"chat": state(STOPPED)}, leads=True), without={"n1"})] == []


def test_a_rollback_that_the_node_was_needed_for_is_named() -> None:
    previous: Deployment = at("q-old")
    journal = replace(SERVING, active=None, previous=previous)

    [line] = plan(on("n1"), Extent(), "n2", Uses({"chat": state(journal)})).consequences
    assert line.startswith("chat cannot roll back to q-old")


def test_every_named_volume_and_host_path_of_the_package_is_removed_or_the_operators() -> None:
    """A new volume or directory on nodes must be added to the removals, or to this list with its reason."""
    sources = {path: text.decode() for path, text in assets.load_package().items() if path.endswith(".py")}
    volumes = {path for path, text in sources.items() if '"--volume=' in text or 'f"--volume={' in text}
    mounts = {path for path, text in sources.items() if "--mount=type=bind" in text}

    assert volumes == {
        "operator/demo/scene.py",  # the directory of the demo, which it removes itself
        "node/docker/commands.py",  # the model directory, caches of kernels, devices of the operator
        "gateway/commands.py",  # VOLUME
        "node/agents/commands.py",  # VOLUME and places.RUN
        "operator/bench/tool.py",  # the model directory, for reading
        "operator/deploy/prune/uninstall.py",
        "operator/status/clients.py",  # printed for the client's own machine
    }
    assert mounts == {
        "node/agents/commands.py",
        "operator/build/images/delivery.py",
        "operator/build/weights/commands.py",
    }  # of what exists
    assert Path("/run/sparkops").name in str(plan(NODE, Extent()).removals[4])
    assert [*agents()][::3] == ["sparkops-guard-replacement", "sparkops-gateway-replacement"]
