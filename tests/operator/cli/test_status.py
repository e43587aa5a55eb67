"""`status` on a terminal: colours, and the view that refreshes in place."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sparkops.errors import UsageError
from sparkops.operator.cli.status_output import of_service
from sparkops.operator.status.picture import Drift, NodeRow, ServiceRow, Status
from tests.operator.cli.conftest import Sparkops
from tests.operator.status.test_read import Docker, give_gpu
from tests.terminal import terminal

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
UP = "\x1b[1A"
MEMORY_USED = "4.6 of 79.6 GiB used"


@pytest.mark.local
@pytest.mark.parametrize("columns", [80, 200])
def test_watch_refreshes_in_place_at_the_width_of_the_terminal(tmp_path: Path, docker: str, columns: int) -> None:
    with terminal(tmp_path, columns, ("status", "--watch"), {"PATH": docker}) as shown:
        shown.until("Ctrl-C to quit", 2)
        code = shown.interrupt()

    plain = ESCAPE.sub("", shown.shown).replace("\r", "\n").splitlines()
    assert code == 0
    assert UP in shown.shown
    assert "here: the user has no access to Docker" in plain
    assert "  next: Add the user to the group `docker` and log in again." in plain
    assert max(map(len, plain)) <= columns


@pytest.mark.local
@pytest.mark.parametrize(
    ("options", "environment", "coloured"),
    [((), {}, True), (("--no-color",), {}, False), ((), {"NO_COLOR": "1"}, False)],
)
def test_status_is_coloured_by_state_only_where_the_terminal_wants_it(
    tmp_path: Path, docker: str, options: tuple[str, ...], environment: dict[str, str], *, coloured: bool
) -> None:
    with terminal(tmp_path, 80, (*options, "status"), {"PATH": docker, **environment}) as shown:
        shown.until("no service")

    assert ("\x1b[31munreachable" in shown.shown) is coloured
    assert ("\x1b[" in shown.shown) is coloured


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine with an idle Docker and a GPU with its own memory."""
    (tmp_path / "inventory.yaml").write_text("nodes:\n  here: {transport: local}\n")
    Docker(tmp_path)
    give_gpu(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")


@pytest.mark.local
@pytest.mark.usefixtures("gpu")
def test_the_memory_of_gpus_is_shown_where_it_is_asked_for(sparkops: Sparkops) -> None:
    assert MEMORY_USED in sparkops("--inventory", "inventory.yaml", "status", "--gpu").out
    assert "GiB used" not in sparkops("--inventory", "inventory.yaml", "status").out


@pytest.mark.local
@pytest.mark.usefixtures("gpu")
def test_watch_shows_the_memory_of_gpus_too(tmp_path: Path) -> None:
    with terminal(tmp_path, 200, ("status", "--watch"), {}) as shown:
        shown.until("Ctrl-C to quit")

    assert MEMORY_USED in ESCAPE.sub("", shown.shown)


CHAT, CODE = (ServiceRow(name=name, url=None, state="healthy", live=None, replicas=[]) for name in ("chat", "code"))
LOST = NodeRow(name="n2", reachable=False, error="no answer", memory=None)
DRIFT = [Drift(code="NODE_NAME", node="n1", detail="d"), Drift(code="ORPHAN", node="n1", detail="d", service="code")]


def test_one_service_is_shown_without_the_others_but_with_a_wrong_inventory() -> None:
    shown = of_service(Status(nodes=[LOST], services=[CHAT, CODE], drift=DRIFT), "chat")

    assert (shown.nodes, shown.services, shown.drift) == ([LOST], [CHAT], DRIFT[:1])


def test_an_unknown_service_is_answered_with_the_nearest_names_and_the_nodes_that_were_not_read() -> None:
    with pytest.raises(UsageError, match="no such service: chta; not read: n2") as refused:
        of_service(Status(nodes=[LOST], services=[CHAT, CODE], drift=[]), "chta")

    assert refused.value.next_step == "Did you mean chat? `sparkops status` lists all."


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize("options", [("--watch",), ("--watch", "--json")])
def test_watch_without_a_terminal_names_the_way_for_programs(
    sparkops: Sparkops, tmp_path: Path, options: tuple[str, ...]
) -> None:
    ran = sparkops("--inventory", tmp_path / "inventory.yaml", "status", *options)

    assert ran.code == 2
    assert ran.err.splitlines()[1] == "  next: Run `sparkops status --json` instead."


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (("--client", "emacs"), 2, "--client: unknown client emacs, expected one of: curl, python, open-webui, "),
        (("--client", "curl", "--gpu"), 2, "--client: does not go with --watch and --gpu"),
        (("--client", "curl"), 2, "gateway: not found"),
    ],
)
def test_a_client_without_a_service_to_call_is_refused(
    sparkops: Sparkops, tmp_path: Path, options: tuple[str, ...], code: int, error: str
) -> None:
    ran = sparkops("--inventory", tmp_path / "inventory.yaml", "status", *options)

    assert (ran.code, ran.out) == (code, "")
    assert error in ran.err


@pytest.mark.usefixtures("docker")
def test_without_a_service_the_configuration_of_a_client_names_the_next_step(
    sparkops: Sparkops, tmp_path: Path
) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("nodes:\n  here: {transport: local}\ngateway: {node: here}\n")

    ran = sparkops("--inventory", inventory, "status", "--client", "curl")

    assert ran.code == 1
    assert "no service answers behind the gateway" in ran.err
