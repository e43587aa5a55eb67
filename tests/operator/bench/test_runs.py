"""Runs of benchmarks: what is kept, which of them is taken, and how two compare."""

from __future__ import annotations

import json

import pytest
import yaml

from sparkops.config.recipe import Expected
from sparkops.operator.bench import runs
from sparkops.operator.bench.runs import Point, Run
from tests.operator.bench.values import RESULT, point, run

CUT = Point(concurrency=8, requests=64)


def test_a_run_is_read_as_it_was_written_and_has_the_tools_own_figures() -> None:
    written = run(point(), CUT)
    read = runs.parse(written.text())

    assert read == written
    assert json.loads(written.text())["points"][0]["result"] == RESULT
    assert read.name == "20261130T005500Z-chat-1"
    assert not read.complete


def test_the_largest_run_is_within_the_bound_of_what_the_leader_keeps() -> None:
    assert len(run(*(point(one) for one in range(1, 17))).text().encode()) < runs.MAX_RUN


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "service: Field required, expected a run of `sparkops bench`"),
        ("[]", "run: Input should be"),
        ("{", "Expecting"),
        ("[" * 100_000, "nested too deeply|expected a run of up to"),
        (" " * (runs.MAX_RUN + 1), "expected a run of up to 65536 bytes"),
        (run().text().replace('"format": 1', '"format": 2'), "format: Input should be 1"),
        (run().text().replace('"concurrency": 1', '"concurrency": 0'), r"points\.0\.concurrency: "),
    ],
)
def test_another_file_is_refused_with_its_field(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        runs.parse(text)


def test_runs_of_a_guard_are_those_that_can_be_read_oldest_first() -> None:
    late = run(started="20261201T000000Z")
    printed = json.dumps({"chat": {"a": late.text(), "b": run().text(), "c": "{}", "d": 1}})

    assert runs.kept(f"a warning\n{printed}\n") == [run(), late]
    for other in ("", "[]", '{"chat": []}'):
        with pytest.raises(ValueError, match=r"Expecting|unexpected runs"):
            runs.kept(other)


def test_the_newest_complete_run_of_a_release_is_taken_and_a_name_is_that_run() -> None:
    first, second, cut = run(), run(started="20261201T000000Z"), run(point(), CUT, started="20261202T000000Z")
    every = [first, second, cut]

    assert runs.newest(every, "chat-1") == second
    assert runs.newest(every, first.name) == first
    assert runs.newest([cut], "chat-1") == cut
    assert runs.newest(every, "chat-2") is None


def test_only_the_last_run_of_a_release_is_continued() -> None:
    cut = run(point(), CUT)

    assert runs.unfinished([cut], "chat", "chat-1") == cut
    assert runs.unfinished([cut, run(started="20261201T000000Z")], "chat", "chat-1") is None
    assert runs.unfinished([cut], "other", "chat-1") is None


def test_a_point_replaces_that_of_its_concurrency() -> None:
    whole = run(point(), CUT).with_point(point(8), tool={"name": "vllm"})

    assert whole.complete
    assert [one.concurrency for one in whole.points] == [1, 8]
    assert whole.tool == {"name": "vllm"}


def rows(first: Run, second: Run) -> dict[tuple[int, str], tuple[float | None, float | None, float | None]]:
    return {(row.concurrency, row.figure): row[2:] for row in runs.compare(first, second)}


def test_two_runs_side_by_side_with_ratios() -> None:
    slower = run(point(output_throughput=82.94412000000001), point(8, median_ttft_ms=0), release="chat-2")
    compared = rows(run(), slower)

    *both, halved = compared[1, "output_throughput"]
    assert both == [RESULT["output_throughput"], 82.94412000000001]
    assert halved == pytest.approx(0.5)
    assert compared[1, "p99_itl_ms"] == (9.75, 9.75, 1.0)
    assert compared[8, "median_ttft_ms"] == (None, 0.0, None)
    assert rows(slower, run())[8, "median_ttft_ms"] == (0.0, None, None)


def test_a_point_that_was_cut_compares_with_nothing() -> None:
    assert (8, "output_throughput") not in rows(run(point(), CUT), run())


def test_what_makes_figures_incomparable_is_said() -> None:
    other = run(output_tokens=512, tool={"name": "vllm", "version": "0.33.0"})

    assert runs.differences(run(), run(release="chat-2", seed=8)) == []
    assert runs.differences(run(), other) == ["output_tokens: 256 and 512", "tool: vllm 0.32.0 and vllm 0.33.0"]


def test_the_recipes_figures_are_those_of_one_stream_and_of_the_start() -> None:
    expected = Expected(tok_s=100.0, ttft_s=0.2, cold_start_s=190.0, source="a test")

    assert runs.against_recipe(run(), expected) == [
        ("tok_s", 200.0, 100.0),
        ("ttft_s", 0.10025, 0.2),
        ("cold_start_s", 95.0, 190.0),
    ]
    assert runs.against_recipe(run(point(8), start=None), expected) == []
    assert runs.against_recipe(run(), None) == []


def test_the_text_for_a_recipe_is_yaml_of_that_key() -> None:
    text = yaml.safe_load(runs.verified(run(point(), CUT, node="n1\nserve: {}")))

    assert [*text] == ["verified"]
    assert text["verified"].splitlines() == [
        "2026-11-30, sparkops bench chat: release chat-1 on n1 serve: {}, through the gateway.",
        f"image sha256:{'a' * 64}, model org/q at c0ffee.",
        "vllm 0.32.0: 1024 tokens in, 256 out, seed 7.",
        "start 1 min 40 s, weights 61.5 GiB, KV cache 20.0 GiB.",
        "memory 30.5 of 121.7 GiB available.",
        "GPU at 2398 of 2418 MHz.",
        "Concurrency 1: output tok/s 166, TTFT median ms 100, TTFT p99 ms 150, TPOT median ms 5.00, ITL p99 ms 9.75, "
        "request p99 ms 1500.",
        "The run is not complete.",
    ]


def test_a_table_marks_what_was_cut_and_counts_what_failed() -> None:
    head, whole, cut = runs.table(run(point(failed=2), CUT))

    assert head[:3] == ["CONCURRENCY", "REQUESTS", "OUTPUT TOK/S"]
    assert whole[:3] == ["1", "8, 2 failed", "166"]
    assert cut == ["8", "not complete", *["-"] * 6]
