"""What the ranks of a pair run: exact lines, and the scripts with real shells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkops.config.release import Rank, Release
from sparkops.engines import ray
from sparkops.engines.launch import RankProgram, Seat
from sparkops.names import Slot
from sparkops.node.docker import ranks
from tests import examples
from tests.ports import free_port

pytestmark = pytest.mark.local  # real shells read real files

OWN = ("VLLM_HOST_IP",)


def rank(index: int, executor: str = "ray", stages: int = 1) -> Rank:
    sizes = {"tensor_parallel": 2, "pipeline_parallel": stages}
    serve: dict[str, Any] = {"port": 9100, **sizes, "executor": executor, "args": {"max-model-len": 1024}}
    release = Release(examples.recipe(serve=serve), examples.INPUTS)
    return Rank(release, Slot.GREEN, f"n{index + 1}", index, "g7")


def seat(index: int) -> Seat:
    address = f"10.0.0.{index + 1}"
    return Seat(address, "10.0.0.1", {"VLLM_HOST_IP": address}, ("--device=/dev/infiniband",), OWN)


def program(index: int, executor: str = "ray", stages: int = 1) -> RankProgram:
    return ranks.program(rank(index, executor, stages), "/models", seat(index))


def test_with_mp_both_ranks_run_the_same_vllm_and_only_the_first_answers() -> None:
    first, second = program(0, "mp"), program(1, "mp")
    joined = ("--tensor-parallel-size=2", "--nnodes=2")

    assert first.entrypoint == second.entrypoint == "vllm"
    assert first.arguments[-5:] == (*joined, "--node-rank=0", "--master-addr=10.0.0.1", "--master-port=9104")
    assert second.arguments[-6:] == (
        *joined,
        "--node-rank=1",
        "--master-addr=10.0.0.1",
        "--master-port=9104",
        "--headless",
    )
    assert first.arguments[:-5] == second.arguments[:-6]
    assert second.options == ("--device=/dev/infiniband",)


def test_with_ray_the_head_serves_and_the_worker_joins() -> None:
    head, worker = program(0), program(1)

    assert head.arguments[3:10] == ("10.0.0.1", "9104", "2", '["VLLM_HOST_IP"]', "120", ray.START, ray.PORTS)
    assert head.arguments[10:12] == ("vllm", "serve")
    assert head.arguments[-2:] == ("--tensor-parallel-size=2", "--distributed-executor-backend=ray")
    assert worker.arguments[3:] == ("10.0.0.2", "9104", "10.0.0.1", "120", ray.START, ray.PORTS)
    assert head.options == worker.options == ("--init", "--device=/dev/infiniband")
    assert (head.env["VLLM_HOST_IP"], worker.env["VLLM_HOST_IP"]) == ("10.0.0.1", "10.0.0.2")


def test_four_ranks_are_two_stages_of_two_with_either_launcher() -> None:
    sizes = ("--tensor-parallel-size=2", "--pipeline-parallel-size=2")
    last, head = program(3, "mp", 2).arguments, program(0, "ray", 2).arguments

    assert last[-7:-2] == (*sizes, "--nnodes=4", "--node-rank=3", "--master-addr=10.0.0.1")
    assert (last[-1], head[5], head[-3:-1]) == ("--headless", "4", sizes)


@pytest.mark.parametrize("index", [0, 1])
def test_each_ray_process_reads_the_token_of_its_cluster(index: int) -> None:
    env = program(index).env

    assert (env["RAY_AUTH_MODE"], env["RAY_AUTH_TOKEN_PATH"]) == ("token", "/run/sparkops-ray-token")
    assert env["RAY_DEDUP_LOGS"] == "0"  # the guard reads the network of each rank in the log of rank 0
    assert "RAY_AUTH_MODE" not in program(index, "mp").env


def test_ray_picks_its_ports_outside_those_of_services() -> None:
    assert ray.PORTS.split() == ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]


def start_ray(home: Path, version: str) -> subprocess.CompletedProcess[str]:
    """Run START with a Ray of `version` whose program reports whether it can import gRPC."""
    main = """import sys
def main():
    try:
        import grpc
    except ImportError:
        print('no client', sys.argv[1:])
"""
    files = {"ray/scripts/scripts.py": main, "grpc/__init__.py": ""}
    files[f"ray-{version}.dist-info/METADATA"] = f"Name: ray\nVersion: {version}\n"
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    argv = (sys.executable, "-c", ray.START, "start", "--head")
    return subprocess.run(argv, env={"PYTHONPATH": str(home)}, capture_output=True, text=True, timeout=120, check=False)


def test_ray_starts_without_its_client_server(tmp_path: Path) -> None:
    started = start_ray(tmp_path, "2.52.0")

    assert (started.returncode, started.stdout) == (0, "no client ['start', '--head']\n"), started.stderr


def test_a_ray_without_token_authentication_is_not_started(tmp_path: Path) -> None:
    refused = start_ray(tmp_path, "2.51.2")

    expected = "sparkops: ray: no token authentication: expected version 2.52 or newer, measured 2.51.2\n"
    assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", expected)


def test_the_labels_say_how_many_ranks_and_which_attempt() -> None:
    labels = rank(1).labels

    assert (labels["sparkops.rank"], labels["sparkops.ranks"], labels["sparkops.generation"]) == ("1", "2", "g7")
    assert "sparkops.ranks" not in Rank(Release(examples.recipe(), examples.INPUTS), Slot.BLUE, "n1").labels


@pytest.fixture
def bin_(tmp_path: Path) -> Path:
    """A directory of programs, with a `ray` that writes down what it is told."""
    directory = tmp_path / "bin"
    directory.mkdir()
    ray = directory / "ray"
    ray.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/ray.log\n[ "$1" = status ] && cat {tmp_path}/status\nexit 0\n')
    ray.chmod(0o755)
    return directory


def run(bin_: Path, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(bin_.parent)}
    return subprocess.run(("sh", *arguments), env=env, capture_output=True, text=True, timeout=120, check=False)


def head_words(*program: str, patience: int = 5) -> tuple[str, ...]:
    common = (json.dumps(OWN), str(patience), 'import os, sys; os.execvp("ray", ["ray", *sys.argv[1:]])', ray.PORTS)
    return ("-c", ray.HEAD, "sparkops", "10.0.0.1", "9104", "2", *common, *program)


def test_the_head_serves_when_ray_shows_every_gpu(bin_: Path, tmp_path: Path) -> None:
    (tmp_path / "status").write_text(" 0.0/4.0 CPU\n 0.0/2.0 GPU\n")

    completed = run(bin_, head_words("echo", "serving", "a b"))

    assert (completed.returncode, completed.stdout.splitlines()[-1]) == (0, "serving a b")
    arguments = f"start --head --node-ip-address=10.0.0.1 --port=9104 {ray.PORTS} --num-gpus=1"
    assert arguments in (tmp_path / "ray.log").read_text()
    kept = tmp_path / ".config/vllm/ray_non_carry_over_env_vars.json"
    assert json.loads(kept.read_text()) == ["VLLM_HOST_IP"]


def test_the_head_says_so_when_a_rank_does_not_join(bin_: Path, tmp_path: Path) -> None:
    (tmp_path / "status").write_text(" 0.0/2.0 CPU\n 0.0/1.0 GPU\n")

    completed = run(bin_, head_words("echo", "serving", patience=0))

    assert completed.returncode == 1
    assert "not all 2 ranks have joined the Ray cluster at 10.0.0.1:9104 within 0 s" in completed.stdout
    assert "serving" not in completed.stdout


def test_a_worker_that_cannot_reach_the_head_says_so(bin_: Path, tmp_path: Path) -> None:
    port = str(free_port())

    completed = run(bin_, ("-c", ray.WORKER, "sparkops", "10.0.0.2", port, "127.0.0.1", "0", ray.START, ""))

    assert (completed.returncode, completed.stdout) == (
        1,
        f"sparkops: 10.0.0.2 has not reached the Ray head at 127.0.0.1:{port} within 0 s\n",
    )
    assert not (tmp_path / "ray.log").exists()
