"""The verb ui: an address with a token, the picture of `status`, plans, and its end by a signal."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.ui import Plans, picture, recipes
from sparkops.operator.status.picture import NodeRow, Status
from tests.operator.cli.conftest import Sparkops
from tests.operator.status.page.pictures import fleet, hour
from tests.ports import free_port
from tests.terminal import Terminal, terminal

ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]+)")


@contextmanager
def page(directory: Path, path: str, *options: str) -> Iterator[tuple[Terminal, str, str]]:
    """Run `sparkops ui`; yields the terminal, the address without a token, and the token."""
    with terminal(directory, 120, ("ui", *options), {"PATH": path}) as shown:
        shown.until("Ctrl-C to quit")
        printed = ADDRESS.search(shown.shown)
        assert printed, shown.shown
        yield shown, f"http://127.0.0.1:{printed[1]}", printed[2]


def get(base: str, path: str, token: str) -> requests.Response:
    return requests.get(f"{base}/{path}", headers={"Authorization": f"Bearer {token}"}, timeout=60)


@pytest.mark.local
def test_the_page_shows_what_status_prints_and_ends_with_ctrl_c(
    tmp_path: Path, docker: str, sparkops: Sparkops, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page(tmp_path, docker) as (shown, base, token):
        got = get(base, "status.json", token).json()
        code = shown.interrupt()
        with pytest.raises(requests.ConnectionError):
            get(base, "status.json", token)
    monkeypatch.setenv("PATH", docker)

    printed = sparkops("--inventory", tmp_path / "inventory.yaml", "status", "--gpu", "--json").json

    assert got["status"] == printed
    assert got["status"]["nodes"][0]["error"] == "the user has no access to Docker"
    assert code == 0


@pytest.mark.local
def test_a_second_one_has_an_address_of_its_own_and_the_first_goes_on_until_it_is_ended(
    tmp_path: Path, docker: str
) -> None:
    with page(tmp_path, docker) as (first, base, token), page(tmp_path, docker) as (second, other, secret):
        assert base != other
        assert get(base, "recipes.json", secret).status_code == get(other, "recipes.json", token).status_code == 403
        assert second.interrupt() == 0
        assert get(base, "status.json", token).ok
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(60) == 0


@pytest.mark.local
def test_a_port_that_is_taken_is_refused(tmp_path: Path, docker: str, sparkops: Sparkops) -> None:
    port = free_port()
    with page(tmp_path, docker, "--port", str(port)) as (_, base, _):
        ran = sparkops("--inventory", tmp_path / "inventory.yaml", "ui", "--port", str(port))

    assert urlsplit(base).port == port
    assert (ran.code, ran.out) == (2, "")
    assert f"--port {port}: Address already in use" in ran.err


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_a_wrong_port_is_refused(sparkops: Sparkops, port: str) -> None:
    assert sparkops("ui", "--port", port).code == 2


def test_a_wrong_inventory_is_refused_before_anything_listens(sparkops: Sparkops, tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text("nodes:\n  here: {transport: local}\nwrong: 1\n")

    ran = sparkops("--inventory", tmp_path / "inventory.yaml", "ui")

    assert (ran.code, ran.out) == (2, "")
    assert "inventory.yaml:3: wrong" in ran.err


def test_a_picture_has_no_credentials_and_the_phases_of_each_mode() -> None:
    error = "cannot pull https://ana:hunter2@registry.example/x"
    made = picture(
        Status(nodes=[NodeRow(name="n", reachable=False, error=error, memory=None)], services=[], drift=[]),
        {},
        Settings(),
    )

    assert "hunter2" not in json.dumps(made)
    assert made["phases"]["in-place"][:3] == ["prepare", "stop traffic", "stop old release"]


def test_the_picture_of_sixteen_nodes_is_json_of_a_bounded_size() -> None:
    samples = hour(1000)

    assert len(json.dumps(picture(fleet(), samples, Settings()))) < 60_000


def test_recipes_of_the_working_directory_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/zz-mine.yaml").write_text("")

    assert recipes()[0] == "zz-mine"
    assert "122b-autoround" in recipes()


@pytest.mark.local
def test_a_plan_is_what_the_verb_prints_also_where_it_refuses(
    tmp_path: Path, docker: str, sparkops: Sparkops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", docker)
    (tmp_path / "tripped.py").write_text("")
    (tmp_path / "typer.py").write_text("raise SystemExit('a file of the working directory was imported')")

    printed = Plans(Settings()).text("122b-autoround")

    ran = sparkops("--inventory", "inventory.yaml", "plan", "122b-autoround")
    assert ran.code != 0
    assert printed == ran.err


def test_plans_run_one_at_a_time() -> None:
    plans = Plans(Settings())
    plans.alone.acquire()

    assert plans.text("122b-autoround") == "Another plan is in progress; retry when it has ended."
