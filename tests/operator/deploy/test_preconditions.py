"""Where a deploy goes, and what stands against a replica on a node."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from sparkops.errors import ConnectionLost, NotReady, PlanRefused, SparkopsError
from sparkops.node.docker.facts import Container
from sparkops.operator.deploy import preconditions as planning
from sparkops.operator.deploy.preconditions import Lacking, Observed
from tests.examples import CHECKPOINT, CUDA, HALF_A_CHECKPOINT, HOST, IMAGE_ID, container, node, rank, release

PULL = "sparkops models pull q --node n1   (or: sparkops models copy q --to n1 --from NODE)"


def observed(*containers: Container, image: str | None = IMAGE_ID, gpu: str = "none", **host: Any) -> Observed:
    return Observed(node(gpu=gpu), replace(HOST, **host), containers, image, CHECKPOINT)


def without_model(**facts: Any) -> Observed:
    return replace(observed(**facts), weights=None)


def find_obstacles(on: Observed, **changes: Any) -> list[SparkopsError]:
    return [*planning.obstacles(rank(**changes), on)]


def problem(on: Observed, **changes: Any) -> SparkopsError:
    [error] = find_obstacles(on, **changes)
    return error


def test_a_release_that_runs_needs_nothing_more_of_its_node() -> None:
    here = observed(container(rank()), image=None, memory_available_gib=0.5, listening=frozenset({8001}))

    assert find_obstacles(here) == []
    assert find_obstacles(replace(here, weights=HALF_A_CHECKPOINT)) == []


OTHER = container(rank(model={"revision": "old"}))
PORT_OWNER = container(rank(service="other"))


@pytest.mark.parametrize(
    ("on", "changes", "kind", "message", "next_step"),
    [
        (
            observed(image=None),
            {},
            Lacking,
            "n1: image not found: sparkops/vllm:0123456789ab",
            "sparkops build q --node n1",
        ),
        (
            observed(),
            {"image": {"torch": CUDA}},
            NotReady,
            "n1: `gpu: none`; q needs CUDA (cu130)",
            "Set `gpu: runtime` (or cdi, or devices) for n1 in the inventory.",
        ),
        (
            without_model(),
            {},
            Lacking,
            "n1: the weights in /srv/models/q: not found",
            PULL,
        ),
        (
            replace(observed(), weights=HALF_A_CHECKPOINT),
            {},
            Lacking,
            "n1: the weights in /srv/models/q: no config.json",
            PULL,
        ),
        (
            observed(listening=frozenset({8001})),
            {},
            PlanRefused,
            "n1: port 8001 is taken by a program",
            "Stop it, or change serve.port of q.",
        ),
        (
            observed(PORT_OWNER, listening=frozenset({8001})),
            {},
            PlanRefused,
            f"n1: port 8001 is taken by {PORT_OWNER.name}",
            "Stop it, or change serve.port of q.",
        ),
    ],
    ids=["no image", "no gpu", "no model", "half a model", "port", "port of ours"],
)
def test_an_obstacle_is_refused_with_a_next_step(
    on: Observed, changes: dict[str, Any], kind: type[SparkopsError], message: str, next_step: str
) -> None:
    error = problem(on, **changes)

    assert (type(error), str(error), error.next_step, error.exit_code) == (kind, message, next_step, 5)


@pytest.mark.parametrize(
    "beside",
    [
        replace(OTHER, state="exited"),
        replace(PORT_OWNER, state="exited"),
        container(rank(service="other", serve={"port": 9000})),
    ],
    ids=["our old release, stopped", "another service, stopped", "another service on its own port"],
)
def test_only_a_running_container_of_that_port_can_be_its_owner(beside: Container) -> None:
    error = problem(observed(beside, listening=frozenset({8001})))

    assert str(error) == "n1: port 8001 is taken by a program"


def test_weights_that_could_not_be_read_are_refused_with_the_reason() -> None:
    error = ConnectionLost("n1", "no answer within 10 s")

    assert problem(replace(observed(), weights_error=error)) is error
    assert problem(replace(without_model(), weights_error=error)) is error


@pytest.mark.parametrize(
    ("closed", "what", "paths"),
    [
        ({"q/w.safetensors": 0o600}, "q/w.safetensors", "/srv/models/q/w.safetensors"),
        ({".": 0o600, "q": 0o600}, ". and 1 more", "/srv/models/. /srv/models/q"),
    ],
)
def test_weights_that_the_user_of_engines_cannot_read_are_refused(
    closed: dict[str, int], what: str, paths: str
) -> None:
    error = problem(replace(observed(), weights=replace(CHECKPOINT, closed=closed)))

    expected = f"n1: engines cannot read /srv/models/{what}: measured mode 0600, expected access for user 10841"
    assert (str(error), error.next_step) == (expected, f"On n1: sudo chmod a+rX {paths}")


def test_an_engine_without_torch_says_where_it_computes() -> None:
    error = problem(observed(), engine="atlas", image={"torch": None, "vllm": None})

    assert str(error) == "n1: `gpu: none`; q needs CUDA (cu130)"


@pytest.mark.parametrize("gpu", ["runtime", "cdi", "devices"])
def test_a_cuda_image_goes_to_a_node_with_a_gpu(gpu: str) -> None:
    small = {"args": {"gpu-memory-utilization": 0.04}}

    assert find_obstacles(observed(gpu=gpu), image={"torch": CUDA}, serve=small) == []


def test_a_stand_in_needs_no_model() -> None:
    assert find_obstacles(without_model(), engine="stand-in") == []


def test_nodes_whose_images_hold_different_packages_are_refused() -> None:
    """Both are builds of the same inputs, and one found newer versions of what nobody had pinned."""
    one, other = (replace(observed(), installed=f"torch 2.13.0+cpu, packages {name * 12}") for name in "ab")

    assert [*planning.differing(release(), {"n1": one, "n2": one})] == []
    assert [*planning.differing(release(), {"n1": one, "n2": observed()})] == []  # an older sparkops noted nothing
    [refused] = planning.differing(release(), {"n1": one, "n2": other})
    assert re.match(r"the nodes do not have the same packages in .*: n1: .*; n2: ", str(refused))
    assert refused.next_step.startswith("sparkops recipe lock q, ")


@pytest.mark.parametrize(
    ("gpu", "requires", "driver", "problem"),
    [
        ("runtime", "13.2", "580.95.05", "driver for CUDA 13.2; driver 580.95.05 has 13.0"),
        ("devices", "14.0", "580.95.05", "driver for CUDA 14.0; driver 580.95.05 has 13.0"),
        ("devices", "13.2", "580.95.05", ""),
        ("runtime", "13.0", "580.95.05", ""),
        ("runtime", "12.9", "580.95.05", ""),
        ("runtime", "13.2", "990.1", ""),
        ("runtime", "13.2", "", ""),
        ("runtime", "", "580.95.05", ""),
    ],
)
def test_an_image_for_a_newer_driver_is_refused_before_docker_would(
    gpu: str, requires: str, driver: str, problem: str
) -> None:
    """NVIDIA's runtime compares the version; without it a CUDA of the same major version starts."""
    on = replace(observed(gpu=gpu, driver=driver), requires=requires)
    found = [str(error) for error in find_obstacles(on, image={"torch": CUDA}, memory={"claim_gib": 1})]

    assert [one for one in found if "driver" in one] == ([f"n1: the image needs a {problem}"] if problem else [])


@pytest.mark.parametrize(
    ("env", "required"),
    [
        (["PATH=/usr/bin", "NVIDIA_REQUIRE_CUDA=cuda>=13.2 brand=unknown,driver>=535,driver<536"], "13.2"),
        (["NVIDIA_REQUIRE_CUDA=driver>=580 cuda>=13.0"], "13.0"),
        (["NVIDIA_REQUIRE_CUDA=cuda>=13.2", "NVIDIA_DISABLE_REQUIRE=true"], ""),
        (["CUDA_VERSION=13.2.0"], ""),
        ([], ""),
    ],
)
def test_an_image_states_the_cuda_that_its_driver_must_have(env: list[str], required: str) -> None:
    assert planning.required_cuda(env) == required


def test_an_engine_is_not_started_on_a_full_disk() -> None:
    refused = problem(observed(disk_free_gib=0.4))

    assert str(refused) == "n1: 0.4 GiB are free on Docker's disk, expected 1 for what an engine compiles"
    assert refused.next_step == "sparkops prune; docker system df, on the node"


@pytest.mark.parametrize(
    ("gpu", "cdi", "refused"),
    [("cdi", "570.86.10", True), ("cdi", "580.95.05", False), ("cdi", "", False), ("devices", "570.86.10", False)],
)
def test_a_cdi_specification_of_another_driver_is_found_before_docker_meets_it(
    gpu: str, cdi: str, *, refused: bool
) -> None:
    on = observed(gpu=gpu, driver="580.95.05", cdi=cdi)
    found = [
        error for error in find_obstacles(on, image={"torch": CUDA}, memory={"claim_gib": 1}) if "CDI" in str(error)
    ]

    assert [str(error) for error in found] == (
        ["n1: the CDI specification is of driver 570.86.10, and the node has 580.95.05"] if refused else []
    )
    assert all(error.next_step.endswith("--output=/etc/cdi/nvidia.yaml") for error in found)
