"""Builds that Docker ends for a passing reason, on a node whose `docker build` is a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkops.command import Command, Completed
from sparkops.config import assets
from sparkops.errors import BuildFailed
from sparkops.node.local import LocalNode
from sparkops.node.member import Member
from sparkops.node.node import OnLine
from sparkops.node.progress import Event
from sparkops.operator.build.guard import image as guard_render
from sparkops.operator.build.images.build import BuildOrder, Gate, run_build
from sparkops.operator.deploy.agents.agents import guard_order

NOT_BEGUN = (
    "runc run failed: unable to start container process: "
    "waiting for init preliminary setup: read init-p: connection reset by peer"
)
"""What a step of a build printed on a node of tests/fleet, with Docker 26.1 and runc 1.1.15."""
FAILED = "#5 [2/2] RUN true\n#5 0.5 {}\n#5 ERROR: process failed\n------\nERROR: failed to solve"
BUILD = """
wc -c >>"$1"
printf '%s\\n' "$3" >&2
[ "$(wc -l <"$1")" -ge "$2" ]
"""
"""Writes down how much it was sent, and fails as BuildKit does until that was as often as is said."""


@dataclass(frozen=True)
class ScriptNode(LocalNode):
    """A node whose `docker build` is a script with its arguments."""

    argv: tuple[str, ...] = ()

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        assert command.argv[2:5] == ("BUILDX_BUILDER=default", "docker", "build")
        return super().run(Command(("sh", "-c", BUILD, "sh", *self.argv)), stdin=stdin, on_line=on_line)


@pytest.mark.parametrize(
    ("printed", "well_at", "builds"), [(NOT_BEGUN, 3, 3), (NOT_BEGUN, 9, 3), ("E: Unable to locate package", 2, 1)]
)
def test_a_build_goes_on_where_docker_could_not_begin_a_step(
    tmp_path: Path, printed: str, well_at: int, builds: int
) -> None:
    sent, events = tmp_path / "sent", list[Event]()
    order = guard_order(assets.load_templates(), assets.load_package(), guard_render.DEBIAN)
    node = ScriptNode("n1", argv=(str(sent), str(well_at), FAILED.format(printed)))
    member = Member("n1", None, node, None)  # type: ignore[arg-type]  # neither is looked at

    with (
        nullcontext() if builds == well_at else pytest.raises(BuildFailed, match=rf"failed: image 2/2: .*\n{printed}$")
    ):
        run_build(member, order, events.append)

    first, *others = sent.read_text().split()
    assert int(first) > 100_000, "the whole context is sent"
    assert others == [first] * (builds - 1)
    assert [event.text for event in events if event.lasting] == ["image 2/2: RUN true"] * builds


@pytest.mark.parametrize(("well_at", "builds"), [(2, 2), (9, 3)])
def test_a_build_is_repeated_if_a_parallel_one_has_created_its_name(
    tmp_path: Path, captured: Callable[[str], str], well_at: int, builds: int
) -> None:
    sent = tmp_path / "sent"
    order = guard_order(assets.load_templates(), assets.load_package(), guard_render.DEBIAN)
    node = ScriptNode("n1", argv=(str(sent), str(well_at), captured("buildx-0.13-same-name.log").rstrip()))
    member = Member("n1", None, node, None)  # type: ignore[arg-type]  # neither is looked at
    reason = r'failed: exporting to image\n(.*\n)+ERROR: failed to solve: image "\S+/race:1": already exists$'

    with nullcontext() if builds == well_at else pytest.raises(BuildFailed, match=reason):
        run_build(member, order, lambda _: None)

    assert len(sent.read_text().split()) == builds


@pytest.mark.parametrize(
    ("image", "why", "registry"),
    [
        ("localhost:5000/owner/private:1", "401 Unauthorized", "localhost:5000"),
        ("ghcr.io/owner/private:1", "authorization failed: no basic auth credentials", "ghcr.io"),
        ("owner/private:1", "pull access denied, repository does not exist: insufficient_scope", "docker.io"),
    ],
)
def test_an_image_that_a_registry_keeps_from_this_login_is_told_with_the_login(
    tmp_path: Path, image: str, why: str, registry: str
) -> None:
    printed = f"ERROR: failed to solve: {image}: failed to resolve source metadata for {image}: {why}"
    order = guard_order(assets.load_templates(), assets.load_package(), guard_render.DEBIAN)
    member = Member("n1", None, ScriptNode("n1", argv=(str(tmp_path / "sent"), "9", printed)), None)  # type: ignore[arg-type]

    with pytest.raises(BuildFailed, match=f"the registry has no {image}, or wants a login") as failed:
        run_build(member, order, lambda _: None)

    login = f"sparkops node login {registry} --user NAME --password-file FILE --node n1"
    assert (failed.value.next_step or "").endswith(f": {login}")


def test_a_node_without_a_registry_is_told_where_images_may_come_from(tmp_path: Path) -> None:
    where = "failed to do request: Head https://registry-1.docker.io/v2/a: dial tcp: lookup registry-1.docker.io"
    printed = f"ERROR: failed to solve: a:1: failed to resolve source metadata for a:1: {where}: no such host"
    order = guard_order(assets.load_templates(), assets.load_package(), guard_render.DEBIAN)
    member = Member("n1", None, ScriptNode("n1", argv=(str(tmp_path / "sent"), "9", printed)), None)  # type: ignore[arg-type]

    with pytest.raises(BuildFailed, match="n1: the node does not reach a registry") as failed:
        run_build(member, order, lambda _: None)

    assert "build.parent_images of the inventory" in failed.value.next_step


PULLING = "#5 [runner 1/3] FROM r.lan/owner/engine:1\n#5 sha256:ab 4MB / 9MB 1s\n#5 ERROR: {0}\n------\nERROR: {0}"
CUT = "failed to copy: httpReadSeeker: failed open: unexpected EOF"


@pytest.mark.parametrize(("well_at", "builds"), [(2, 2), (9, 3)])
def test_a_pull_that_is_cut_off_is_repeated_so_often_and_then_explained(
    tmp_path: Path, well_at: int, builds: int
) -> None:
    sent, events = tmp_path / "sent", list[Event]()
    order = guard_order(assets.load_templates(), assets.load_package(), guard_render.DEBIAN)
    member = Member("n1", None, ScriptNode("n1", argv=(str(sent), str(well_at), PULLING.format(CUT))), None)  # type: ignore[arg-type]
    why = rf"n1: the connection to the registry was cut off while the node pulled r\.lan/owner/engine:1: ERROR: {CUT}$"

    with nullcontext() if builds == well_at else pytest.raises(BuildFailed, match=why):
        run_build(member, order, events.append)

    assert len(sent.read_text().split()) == builds
    assert sum(event.text.startswith("retrying after: the connection") for event in events) == builds - 1


BLOB = "failed to copy: httpReadSeeker: failed open: unexpected status code https://r.lan/v2/owner/engine/blobs/ab"


@pytest.mark.parametrize(
    "answer",
    [
        f"{BLOB}: 403 Forbidden",
        f"{BLOB}: 401 Unauthorized",
        f"{BLOB}: 429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit",
        "failed to copy: httpReadSeeker: failed open: content at https://r.lan/v2/ab not found: not found",
    ],
)
def test_a_pull_that_the_registry_refuses_is_not_repeated(tmp_path: Path, answer: str) -> None:
    sent = tmp_path / "sent"
    order = guard_order(assets.load_templates(), assets.load_package(), guard_render.DEBIAN)
    member = Member("n1", None, ScriptNode("n1", argv=(str(sent), "9", PULLING.format(answer))), None)  # type: ignore[arg-type]

    with pytest.raises(BuildFailed, match="the build failed"):
        run_build(member, order, lambda _: None)

    assert len(sent.read_text().split()) == 1


def test_a_failed_build_leads_on_with_a_command_that_runs_as_printed(tmp_path: Path) -> None:
    """The command of the node reads its context and secrets from this process."""
    context = guard_order(assets.load_templates(), assets.load_package(), guard_render.DEBIAN).context
    order = BuildOrder("vllm", context, 1.0, Gate(lambda image: Command(("true", image))), recipe="q")
    printed = FAILED.format("exit code: 1")
    member = Member("n1", None, ScriptNode("n1", argv=(str(tmp_path / "sent"), "9", printed)), None)  # type: ignore[arg-type]

    with pytest.raises(BuildFailed) as failed:
        run_build(member, order, lambda _: None)

    assert failed.value.next_step == "sparkops --verbose build q --node n1"


def test_an_installation_that_is_cut_off_is_no_pull(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    order = guard_order(assets.load_templates(), assets.load_package(), guard_render.DEBIAN)
    member = Member("n1", None, ScriptNode("n1", argv=(str(sent), "9", FAILED.format("unexpected EOF"))), None)  # type: ignore[arg-type]

    with pytest.raises(BuildFailed, match="the build failed"):
        run_build(member, order, lambda _: None)

    assert len(sent.read_text().split()) == 1
