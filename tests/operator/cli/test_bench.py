"""`bench` on this machine: a `docker` that runs a tool of this test, and keeps runs in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.engines.start_log import ReportedMemory, Stage
from sparkops.names import Slot
from sparkops.operator.build.gateway.image import Service
from sparkops.serving import engine_spec
from sparkops.serving.engine_spec import EngineSpec
from sparkops.serving.startup.estimate import Started
from sparkops.swap import wire
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, Replica
from tests.examples import IMAGE_ID, INPUTS, recipe, release
from tests.operator.bench.values import RESULT, point, run
from tests.operator.cli.here import INVENTORY, Here, install

pytestmark = [pytest.mark.local, pytest.mark.timeout(180)]
EXPECTED = {"tok_s": 100.0, "source": "a test"}
RECIPE = recipe(swap={"reserve_gib": 0}, expected=EXPECTED)
RELEASE = release(swap={"reserve_gib": 0}, expected=EXPECTED).id
DOCKER = """#!/bin/sh
for last; do :; done
case "$*" in
run*task=bench*) exec env PYTHONPATH={root}/fake python3 -c "$last" ;;
"exec --interactive sparkops-guard python3 -c "*) sed -u 's#/var/lib/sparkops#{root}/state#' | python3 -c "$last" ;;
*) exec {root}/bin/docker.own "$@" ;;
esac
"""
TOOL = """
import json, os, sys
out = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
concurrency = int(out["max-concurrency"])
sys.stderr.write("\\r  0%|   | 0/2 [00:00<?]\\r100%|##| 2/2 [00:02<00:00]\\n")
with open("{root}/asked", "a") as asked:
    asked.write(" ".join(sys.argv[1:]) + chr(10))
if concurrency > 1 and os.path.exists("{root}/broken"):
    sys.exit("ValueError: the server went away")
with open(os.path.join(out["result-dir"], out["result-filename"]), "w") as file:
    json.dump(dict({result}, max_concurrency=concurrency), file)
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    """This machine with a release that serves."""
    inventory = INVENTORY.replace("address: 127.0.0.1}", "address: 127.0.0.1, port: 8000}")
    with install(tmp_path, inventory=inventory, service=Service("chat", 8000)) as installed:
        own, docker = tmp_path / "bin/docker.own", tmp_path / "bin/docker"
        docker.rename(own)
        docker.write_text(DOCKER.format(root=tmp_path))
        docker.chmod(0o755)
        tool = tmp_path / "fake/vllm/entrypoints/cli/main.py"
        tool.parent.mkdir(parents=True)
        tool.write_text(TOOL.format(root=tmp_path, result=repr(RESULT)))
        installed.peer.write(Journal("chat", "here", revision=1, active=serving()))
        yield installed


def serving() -> Deployment:
    spec = EngineSpec(
        recipe=RECIPE.model_dump(mode="json", exclude_none=True),
        inputs=INPUTS,
        image=IMAGE_ID,
        slot=Slot.BLUE,
        index=0,
        address="127.0.0.1",
        node={"transport": "local"},
        jobs=1,
    )
    return Deployment(RELEASE, Slot.BLUE, (Replica((engine_spec.rank_spec(spec, "here"),)),))


def kept(here: Here) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((here.directory / "state/v2/bench/chat").glob("*.json"))]


def test_a_run_is_the_tools_own_result_and_is_kept_with_what_it_measured(here: Here) -> None:
    ran = here("bench", "chat", "--concurrency", "1,2", "--requests", "2", "--json")

    assert ran.code == 0, ran.err
    assert [(one["concurrency"], one["complete"]) for one in ran.json["points"]] == [(1, True), (2, True)]
    assert ran.json["points"][1]["result"] == {**RESULT, "max_concurrency": 2}
    assert (ran.json["release"], ran.json["image"], ran.json["node"]) == (RELEASE, IMAGE_ID, "here")
    assert (ran.json["model"], ran.json["via"], ran.json["url"]) == ("org/q", "gateway", "http://127.0.0.1:8000")
    assert kept(here) == [ran.json]
    assert "concurrency 2: 8 requests answered" in ran.err


def test_the_last_start_of_the_release_is_beside_the_figures(here: Here) -> None:
    memory = ReportedMemory(weights_gib=61.5, cache_gib=20.0)
    starts = [
        Started(release=of, kind="q", stages={Stage.SERVING: took_s}, memory=memory)
        for of, took_s in ((RELEASE, 90.0), (RELEASE, 80.0), ("q-other", 10.0))
    ]
    (here.peer.directory / "chat.starts").write_text(json.dumps([start.model_dump(mode="json") for start in starts]))

    ran = here("bench", "chat", "--concurrency", "1", "--json")

    assert ran.code == 0, ran.err
    assert ran.json["start"] == {
        "took_s": 80.0,
        "stages": {Stage.SERVING.value: 80.0},
        "weights_gib": 61.5,
        "cache_gib": 20.0,
        "graphs_gib": None,
    }


def test_a_release_that_is_replaced_meanwhile_ends_the_run_unmeasured(here: Here) -> None:
    """The tool of this run changes the journal as a deploy would."""
    other = Journal("chat", "here", revision=9, active=replace(serving(), release="q-other"))
    (here.directory / "next").write_bytes(wire.dump(Journal, other))
    tool = here.directory / "fake/vllm/entrypoints/cli/main.py"
    copied = (
        f"import shutil\nshutil.copy({str(here.directory / 'next')!r}, {str(here.peer.directory / 'chat.journal')!r})"
    )
    tool.write_text(f"{tool.read_text()}\n{copied}\n")

    ran = here("bench", "chat", "--concurrency", "1,2")

    assert ran.code == 1
    assert f"{RELEASE} no longer serves chat: concurrency 1 is not complete" in ran.err
    assert [one["complete"] for one in kept(here)[0]["points"]] == [False, False]


def test_it_prints_a_table_and_what_the_recipe_expects_and_writes_a_page(here: Here) -> None:
    ran = here("bench", "chat", "--concurrency", "1", "--report", "page.html")

    assert ran.code == 0, ran.err
    assert "CONCURRENCY  REQUESTS  OUTPUT TOK/S" in ran.out
    assert "tok_s                   200       100       2.00" in ran.out
    assert "<svg" in (here.directory / "page.html").read_text()


def test_a_run_that_is_cut_is_kept_marked_and_continues(here: Here) -> None:
    (here.directory / "broken").touch()

    cut = here("bench", "chat", "--concurrency", "1,2")
    marked = kept(here)
    listed = here("bench", "--list")
    (here.directory / "broken").unlink()
    whole = here("bench", "chat", "--continue", "--json")
    again = here("bench", "chat", "--continue")

    assert cut.code == 1
    assert "concurrency 2: the benchmark failed\n  ValueError: the server went away" in cut.err
    assert "next: sparkops logs chat; then sparkops bench chat --continue" in cut.err
    assert [[one["complete"] for one in run["points"]] for run in marked] == [[True, False]]
    assert "not complete" in listed.out
    assert whole.code == 0, whole.err
    assert [one["complete"] for one in whole.json["points"]] == [True, True]
    assert kept(here) == [whole.json]
    asked = (here.directory / "asked").read_text().splitlines()
    assert [line.partition("--max-concurrency=")[2][0] for line in asked] == ["1", "2", "2"]
    assert asked[1] == asked[2].replace(asked[2].partition("--result-dir=")[2].split()[0], result_dir(asked[1]))
    assert (again.code, "the last run of" in again.err) == (2, True)


def result_dir(line: str) -> str:
    return line.partition("--result-dir=")[2].split()[0]


def test_a_dry_run_prints_the_commands_and_measures_nothing(here: Here) -> None:
    ran = here("bench", "chat", "--concurrency", "1,32", "--direct", "--dry-run")

    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{RELEASE} on here, through the engine: http://127.0.0.1:8001\n  $ docker run --rm ")
    assert (
        "in it, concurrency 32: python -m vllm.entrypoints.cli.main bench serve --base-url=http://127.0.0.1" in ran.out
    )
    assert not (here.directory / "asked").exists()
    assert kept(here) == []


def test_a_swap_in_progress_is_not_measured(here: Here) -> None:
    journal = here.peer.journal("chat")
    assert journal is not None
    here.peer.write(journal.begun("i", Mode.BESIDE, serving(), automatic=True))

    ran = here("bench", "chat")

    assert ran.code == 4, ran.err
    assert "is in progress" in ran.err


def files(here: Here) -> None:
    (here.directory / "a.json").write_text(run().text())
    (here.directory / "b.json").write_text(run(point(output_throughput=82.94412000000001), release="chat-2").text())


def test_two_files_compare_without_a_fleet(here: Here) -> None:
    files(here)
    (here.directory / "inventory.yaml").unlink()

    ran, as_json = (
        here("bench", "--compare", "a.json", "b.json"),
        here("bench", "--compare", "a.json", "b.json", "--json"),
    )
    page = here("bench", "--compare", "a.json", "b.json", "--report", "page.html")

    assert (ran.code, as_json.code, page.code) == (0, 0, 0), ran.err
    assert "1            output tok/s    166   82.94  0.500\n" in ran.out
    assert as_json.json["figures"][0]["second"] == 82.94412000000001
    assert "chat-2" in (here.directory / "page.html").read_text()


def test_verified_of_a_file(here: Here) -> None:
    files(here)

    ran = here("bench", "--show", "a.json", "--verified")

    assert ran.code == 0, ran.err
    assert ran.out.startswith("verified: |\n  2026-11-30, sparkops bench chat: release chat-1 on n1, ")


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--compare", "a.json"], "--compare: expected two runs, got 1 names"),
        ([], "bench: expected one SERVICE, got 0 names"),
        (["--list", "--show"], "--list: not with --show"),
        (["--list", "--continue"], "--list: not with --continue"),
        (["--compare", "a.json", "b.json", "--verified"], "--compare: not with --verified"),
        (["--show", "other"], "no kept run and no file: other"),
        (["--show", "wrong.json"], "wrong.json:1: service: Field required"),
        (["chat", "--concurrency", "0"], "--concurrency: expected up to 16 different numbers"),
        (["nothing"], "no such service: nothing"),
    ],
)
def test_what_does_not_go_together_is_wrong_input(here: Here, argv: list[str], problem: str) -> None:
    files(here)
    (here.directory / "wrong.json").write_text("{}")

    ran = here("bench", *argv)

    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err
