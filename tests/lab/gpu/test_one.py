"""The whole way on one GPU: build, gate, deploy, ask, swap beside under load, roll back, restart."""

from __future__ import annotations

import json

import pytest

from tests.fleet.shell import run
from tests.lab.gpu.lab import Lab
from tests.real.service import wait_for

pytestmark = pytest.mark.gpu
RESTART_S = 180.0
ON_GPU = {"vllm": "EngineCore", "sglang": "sglang::scheduler"}
"""Title of the process that holds the GPU."""


def test_a_second_build_has_nothing_to_do(lab: Lab, built: str) -> None:
    second = lab.run("build again", "build", str(lab.recipe), "--json").json

    assert second["tag"] == built
    assert not any(node["built"] for node in second["nodes"].values())


def test_doctor_sees_the_gpu(lab: Lab) -> None:
    (node,) = lab.doctor()["nodes"]
    assert node["driver"] == lab.evidence.facts["driver"]


def test_a_first_deploy_answers(serving: Lab) -> None:
    assert serving.status()["state"] == "healthy"
    serving.run("smoke suite", "probe", serving.service, "--recipe", str(serving.recipe))
    ((node, container),) = serving.live()
    inspect = serving.nodes[node]("inspect", container)
    serving.evidence.keep("inspect.json", inspect)
    assert json.loads(inspect)[0]["HostConfig"]["RestartPolicy"]["Name"] == "no"


def test_an_engine_whose_gpu_process_is_killed_serves_again_by_itself(serving: Lab) -> None:
    ((node, container),) = serving.live()
    with serving.evidence.step("kill -9 of the process on the GPU"):
        rows = serving.nodes[node]("top", container, "-eo", "pid,args").splitlines()
        (pid,) = [row.split()[0] for row in rows if ON_GPU[serving.engine] in row]
        run("kill", "-9", pid)
        wait_for(lambda: not serving.answers(), 30)
    serving.answers_again("the guard restarts the engine, no other release is warm", RESTART_S)
    serving.save("after the kill")
    serving.run("history", "history", serving.service)


def test_a_swap_beside_and_a_rollback_lose_no_request(serving: Lab) -> None:
    first = serving.check_answer("ask before the swap")
    with serving.loaded("swap beside and rollback") as load:
        swap = serving.deploy("swap beside", "--mode", "beside", change={"env.RELEASE": "two"})
        assert serving.check_answer("ask after the swap") == swap.json["release"] != first
        load.wait_for(load.report().good + 20, 60)
        serving.run("roll back to the warm release", "rollback", serving.service)
        assert serving.check_answer("ask after the rollback") == first
