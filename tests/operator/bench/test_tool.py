"""The command of a benchmark, its output, and the programs that run in its container and beside the guard."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkops.config import programs
from sparkops.errors import CommandFailed, UsageError
from sparkops.node.member import Member
from sparkops.node.program import python
from sparkops.operator.bench import tool
from sparkops.operator.bench.tool import Load, Outcome
from sparkops.operator.fleet.transfer import transfer
from tests.examples import IMAGE_ID, recipe
from tests.operator.bench.values import RESULT, run
from tests.operator.build.weights.places import member

KEY = "a-key-of-the-gateway"


def test_the_tool_measures_the_service_as_clients_name_it() -> None:
    argv = tool.arguments(recipe(), "http://10.0.0.1:8000", Load(128, 16, seed=100), 4)

    assert argv == (
        "vllm.entrypoints.cli.main",
        "bench",
        "serve",
        "--base-url=http://10.0.0.1:8000",
        "--model=chat",
        "--tokenizer=/models/q",
        "--dataset-name=random",
        "--random-input-len=128",
        "--random-output-len=16",
        "--num-prompts=32",
        "--max-concurrency=4",
        "--seed=104",
        "--temperature=0",
        "--percentile-metrics=ttft,tpot,itl,e2el",
        "--metric-percentiles=50,95,99",
    )


def test_it_counts_prompts_as_the_recipe_does() -> None:
    args = {"tokenizer-mode": "mistral", "trust-remote-code": True, "tokenizer": "/models/other", "enforce-eager": True}
    argv = tool.arguments(recipe(serve={"args": args, "allow": ["trust-remote-code"]}), "http://h", Load(), 1)

    assert {"--tokenizer=/models/other", "--tokenizer-mode=mistral", "--trust-remote-code"} < {*argv}
    assert not [word for word in argv if "eager" in word]


def test_requests_are_for_each_stream_unless_stated() -> None:
    assert [Load().requests_at(one) for one in (1, 8)] == [8, 64]
    assert [Load(requests=5).requests_at(one) for one in (1, 8)] == [5, 5]


def test_its_container_has_no_gpu_and_bounded_memory_and_no_argument_has_the_key() -> None:
    command = tool.command(IMAGE_ID, "/srv/models", ("m", "bench"), KEY)
    words = command.argv

    assert not [word for word in words if word.startswith(("--gpus", "--device", "--runtime"))]
    assert {"--network=host", "--env=NVIDIA_VISIBLE_DEVICES=void", "--memory=4g", "--cap-drop=ALL"} < {*words}
    assert "--volume=/srv/models:/models:ro" in words
    assert IMAGE_ID in words
    assert KEY not in str(command)
    assert KEY.encode() in command.stdin


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"engine": "stand-in", "image": {"torch": None, "vllm": None, "template": "stand-in"}}, "no benchmark"),
        ({"serve": {"task": "embedding"}}, "serve.task is embedding, expected chat"),
    ],
)
def test_what_it_cannot_measure_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        tool.require(recipe(**changes))


def test_the_result_is_the_tools_own_without_its_lists() -> None:
    detailed = {**RESULT, "latencies": [0.1] * 1000, "errors": [""], "long": "x" * 1000}
    ended = tool.parse(json.dumps({"result": detailed, "tool": {"name": "vllm", "version": "0.32.0"}}))

    assert ended == Outcome(RESULT, {"name": "vllm", "version": "0.32.0"})
    assert isinstance(ended, Outcome)
    assert ended.problem == ""


def test_a_failure_shows_the_end_of_the_log() -> None:
    ended = tool.parse(json.dumps({"failed": 1, "log": ["a", "ValueError: \x1b[2Jno"]}))

    assert isinstance(ended, Outcome)
    assert ended.problem == "the benchmark failed\n  a\n  ValueError: \\x1b[2Jno"
    assert Outcome({**RESULT, "completed": 0}).problem == "no request succeeded"


@pytest.mark.parametrize("line", ["", "WARNING", "[]", '{"at": "1"}', '{"result": 1}'])
def test_other_text_is_nothing(line: str) -> None:
    assert tool.parse(line) is None


# --- in the container

FAKE = """
import json, os, sys, time
out = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
assert os.environ["OPENAI_API_KEY"] == "a-key-of-the-gateway"
sys.stderr.write("Starting\\n\\r  0%|   | 0/2 [00:00<?]\\r 50%|#  | 1/2 [00:01<00:01]\\r100%|##| 2/2 [00:02<00:00]\\n")
if "fail" in sys.argv: sys.exit("ValueError: Initial test run failed")
json.dump(RESULT, open(os.path.join(out["result-dir"], out["result-filename"]), "w"))
"""


@pytest.mark.local
@pytest.mark.parametrize("fails", [False, True])
def test_the_program_reports_progress_and_the_file_of_the_tool(tmp_path: Path, fails: bool) -> None:
    (tmp_path / "fake_tool.py").write_text(FAKE.replace("RESULT", repr(RESULT)))
    request = {"argv": ["fake_tool", *(["fail"] if fails else [])], "env": {"OPENAI_API_KEY": KEY}}
    interpreter = ("env", f"PYTHONPATH={tmp_path}", sys.executable)
    command = python(programs.load(*programs.BENCH_TOOL), request, interpreter=interpreter)
    lines = list[str]()

    transfer.attended(member("n1", tmp_path / "models"), command, lines.append)

    parsed = [one for line in lines if (one := tool.parse(line))]
    assert parsed[:3] == [(0, 2), (1, 2), (2, 2)]
    if fails:
        assert parsed[3] == Outcome(log=("Starting", "ValueError: Initial test run failed"))
    else:
        assert parsed[3] == Outcome(RESULT, {"name": "fake_tool"})


# --- beside the guard


def store(node: Member, root: Path, verb: str, **request: str) -> str:
    command = python(programs.load(*programs.BENCH_RUNS), {"verb": verb, "root": str(root), **request})
    return node.node.run(command).stdout


@pytest.mark.local
def test_a_guard_keeps_a_bounded_number_of_runs_for_their_owner(tmp_path: Path) -> None:
    node, root = member("n1", tmp_path / "models"), tmp_path / "v2/bench"
    assert json.loads(store(node, root, "read")) == {}
    known = [run(started=f"202611{day}T000000Z") for day in range(10, 32)]
    (root / "chat").mkdir(parents=True)
    for one in known[:-1]:
        (root / f"chat/{one.name}.json").write_text(one.text())
    store(node, root, "save", service="chat", name=known[-1].name, text=known[-1].text())
    store(node, root, "save", service="other", name=run().name, text="first")
    store(node, root, "save", service="other", name=run().name, text="second")

    kept = json.loads(store(node, root, "read"))

    assert [*kept] == ["chat", "other"]
    assert [name[:8] for name in kept["chat"]] == [f"202611{day}" for day in range(12, 32)]
    assert kept["other"] == {run().name: "second"}
    assert (root / f"other/{run().name}.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.local
def test_the_oldest_of_all_go_where_all_are_too_large(tmp_path: Path) -> None:
    node, root = member("n1", tmp_path / "models"), tmp_path / "bench"
    names = [f"20261110T{number:02}0000Z-r" for number in range(20)]
    for number, name in enumerate(names[:-1]):
        (place := root / f"s{number}").mkdir(parents=True)
        (place / f"{name}.json").write_text("x" * 2**16)
    store(node, root, "save", service="s19", name=names[-1], text="x" * 2**16)

    assert len(json.loads(store(node, root, "read"))) == 16


@pytest.mark.local
@pytest.mark.parametrize(
    "change", [{"service": "../x"}, {"name": "../x"}, {"name": "20261130T005500Z-../../x"}, {"text": "x" * 70_000}]
)
def test_what_would_leave_its_place_or_bound_is_refused(tmp_path: Path, change: dict[str, str]) -> None:
    request = {"service": "chat", "name": run().name, "text": "{}", **change}
    with pytest.raises(CommandFailed, match="benchmarks: "):
        store(member("n1", tmp_path / "models"), tmp_path / "bench", "save", **request)

    assert list(tmp_path.rglob("*.json")) == []
