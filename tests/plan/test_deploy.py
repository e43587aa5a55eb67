"""From a release and what was observed to the commands that run, or to a refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.errors import ConnectionLost, NodesFailed, NotReady, PlanRefused, SparkopsError
from sparkops.facts.docker import Container
from sparkops.plan import deploy as planning
from sparkops.plan.deploy import Act, Observed, Plan
from tests.examples import CHECKPOINT, CUDA, HALF_A_CHECKPOINT, HOST, IMAGE_ID, container, node, rank, recipe, release

RANK = rank()
NAME = RANK.container
PROBE = "run the smoke suite: 3 passes in a row"
LOOK = [(Act.WATCH, "watch the start until /health answers"), (Act.PROBE, PROBE)]
PULL = "sparkops models pull q --node n1   (or: sparkops models copy q --to n1 --from NODE)"
KEEP = (Act.RUN, f"docker update --restart=always {NAME}")


def observed(*containers: Container, image: str | None = IMAGE_ID, gpu: str = "none", **host: Any) -> Observed:
    return Observed(node(gpu=gpu), replace(HOST, **host), containers, image, CHECKPOINT)


def without_model(**seen: Any) -> Observed:
    return replace(observed(**seen), weights=None)


def plan(on: Observed) -> Plan:
    return planning.deploy(release(), {"n1": on})


def steps(on: Observed) -> list[tuple[Act, str]]:
    """What runs: the command's line without the options of create, or the title of what is no command."""
    [replica] = plan(on).replicas
    lines = [(step.act, str(step.command or step.title)) for step in replica.steps]
    return [(act, f"docker create {NAME}" if line.startswith("docker create ") else line) for act, line in lines]


def problem(on: Observed, **changes: Any) -> SparkopsError:
    with pytest.raises(SparkopsError) as caught:
        planning.deploy(release(**changes), {"n1": on})
    return caught.value


def test_on_an_empty_node_everything_is_done() -> None:
    create, start = (Act.RUN, f"docker create {NAME}"), (Act.RUN, f"docker start {NAME}")

    assert steps(observed()) == [create, start, *LOOK, KEEP]


@pytest.mark.parametrize("state", ["created", "exited", "dead"])
def test_a_container_that_does_not_run_is_made_anew(state: str) -> None:
    assert steps(observed(container(RANK, state=state))) == [
        (Act.RUN, f"docker rm {NAME}"),
        (Act.RUN, f"docker create {NAME}"),
        (Act.RUN, f"docker start {NAME}"),
        *LOOK,
        KEEP,
    ]


def test_a_start_that_is_under_way_is_adopted() -> None:
    assert steps(observed(container(RANK, restart_policy="no"))) == [*LOOK, KEEP]


def test_where_the_release_runs_and_is_promoted_nothing_changes() -> None:
    on = observed(container(RANK))

    assert steps(on) == LOOK
    assert plan(on).replicas[0].changes is False


def test_a_release_that_runs_needs_nothing_more_of_its_node() -> None:
    here = observed(container(RANK), image=None, memory_available_gib=0.5, listening=frozenset({RANK.port}))
    bare = replace(here, weights=HALF_A_CHECKPOINT)

    assert steps(bare) == LOOK


def test_the_container_is_created_from_the_image_that_passed_its_gates() -> None:
    [replica] = plan(observed()).replicas

    assert IMAGE_ID in str(replica.steps[0].command)


def test_another_service_on_the_node_is_left_alone() -> None:
    other = container(rank(service="other", serve={"port": 9000}))

    assert steps(observed(other)) == steps(observed())


def test_a_stopped_release_of_the_service_is_left_alone() -> None:
    old = container(rank(model={"revision": "old"}), state="exited")

    assert steps(observed(old)) == steps(observed())


def test_a_plan_shows_its_arithmetic_and_exactly_what_runs() -> None:
    made = plan(observed(container(RANK, restart_policy="no")))

    assert str(made) == (
        f"service chat, release {release().id}\n"
        "  n1: the release is there, its 10 GiB are taken already\n"
        "  n1: blue, port 8001\n"
        "    1. watch the start until /health answers\n"
        f"    2. {PROBE}\n"
        "    3. let Docker keep it running\n"
        f"      $ docker update --restart=always {NAME}"
    )
    assert plan(observed()).notes == ("n1: 100.0 GiB available - 10 GiB claimed = 90.0 GiB left",)


def test_a_plan_names_what_runs_code() -> None:
    serve = {"args": {"middleware": ["a.B"]}, "env": {"LD_PRELOAD": "/x.so"}, "allow": ["middleware", "LD_PRELOAD"]}

    assert planning.deploy(release(serve=serve), {"n1": observed()}).notes[:2] == (
        "allowed: middleware (imports Python code that its value names)",
        "allowed: LD_PRELOAD (loads shared libraries into every program)",
    )


OTHER = container(rank(model={"revision": "old"}))
PORT_OWNER = container(rank(service="other"))


@pytest.mark.parametrize(
    ("on", "changes", "kind", "message", "next_step"),
    [
        (
            observed(image=None),
            {},
            NotReady,
            "n1: it does not have the image sparkops/q:0123456789ab",
            "sparkops build q --node n1",
        ),
        (
            observed(),
            {"image": {"torch": CUDA}},
            NotReady,
            "n1: it offers no GPU, and q needs cu130",
            "Set `gpu: runtime` (or cdi, or devices) for n1 in the inventory.",
        ),
        (
            without_model(),
            {},
            NotReady,
            "n1: the weights in /srv/models/q: it is not there",
            PULL,
        ),
        (
            replace(observed(), weights=HALF_A_CHECKPOINT),
            {},
            NotReady,
            "n1: the weights in /srv/models/q: it has no config.json",
            PULL,
        ),
        (
            observed(OTHER, memory_available_gib=1.0, listening=frozenset({8001})),
            {},
            PlanRefused,
            f"n1: release {OTHER.release} of chat runs there",
            "sparkops stop chat --node n1",
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
        (
            observed(memory_available_gib=8.5),
            {},
            PlanRefused,
            "n1: 10 GiB claimed, 8.5 GiB available: 1.5 GiB short",
            "Stop what uses the memory, or lower memory.claim_gib if it is wrong.",
        ),
    ],
    ids=["no image", "no gpu", "no model", "half a model", "other release", "port", "port of ours", "memory"],
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
    unseen = ConnectionLost("n1", "no answer within 10 s")

    assert problem(replace(observed(), unseen=unseen)) is unseen
    assert problem(replace(without_model(), unseen=unseen)) is unseen


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


def test_a_replica_of_two_nodes_is_refused_before_anything_else() -> None:
    error = problem(without_model(), serve={"tensor_parallel": 2})

    assert str(error) == "q joins 2 nodes into one replica: it is deployed behind the gateway"
    assert (type(error), error.next_step) == (PlanRefused, "sparkops deploy q --blue-green")


def test_an_engine_without_torch_says_where_it_computes() -> None:
    error = problem(observed(), engine="atlas", image={"torch": None, "vllm": None})

    assert str(error) == "n1: it offers no GPU, and q needs cu130"


@pytest.mark.parametrize("gpu", ["runtime", "cdi", "devices"])
def test_a_cuda_image_goes_to_a_node_with_a_gpu(gpu: str) -> None:
    small = {"args": {"gpu-memory-utilization": 0.04}}
    made = planning.deploy(release(image={"torch": CUDA}, serve=small), {"n1": observed(gpu=gpu)})

    assert len(made.replicas) == 1


def test_a_stand_in_needs_no_model() -> None:
    made = planning.deploy(release(engine="stand-in"), {"n1": without_model()})

    assert len(made.replicas) == 1


def test_memory_that_is_just_enough_is_enough() -> None:
    assert steps(observed(memory_available_gib=10.0)) == steps(observed())


def test_all_obstacles_of_all_nodes_come_at_once() -> None:
    with pytest.raises(NodesFailed) as caught:
        planning.deploy(
            release(),
            {
                "n1": without_model(image=None),
                "n2": observed(),
                "n3": observed(memory_available_gib=8.5),
            },
        )

    assert str(caught.value).splitlines() == [
        "n1: it does not have the image sparkops/q:0123456789ab",
        "n1: the weights in /srv/models/q: it is not there",
        "n3: 10 GiB claimed, 8.5 GiB available: 1.5 GiB short",
    ]
    assert caught.value.exit_code == 5


def test_each_node_gets_a_replica_of_its_own() -> None:
    made = planning.deploy(release(), {"n1": observed(), "n2": observed()})

    assert [(replica.rank.node, replica.rank.container) for replica in made.replicas] == [("n1", NAME), ("n2", NAME)]


@pytest.mark.parametrize(
    ("asked", "nodes", "chosen"),
    [(["n3", "n1"], ["n2"], ("n3", "n1")), ([], ["n2"], ("n2",)), ([], [], ("n3",))],
    ids=["asked for", "the recipe's", "the freest"],
)
def test_a_deploy_goes_where_it_is_told_and_else_to_the_freest_node(
    asked: list[str], nodes: list[str], chosen: tuple[str, ...]
) -> None:
    fleet = {
        "n1": observed(memory_available_gib=50.0),
        "n2": observed(memory_available_gib=60.0),
        "n3": observed(memory_available_gib=70.0),
    }

    assert planning.place(recipe(nodes=nodes), asked, fleet) == chosen


def test_a_service_is_deployed_where_it_is() -> None:
    fleet = {"n1": observed(), "n2": observed(OTHER, memory_available_gib=1.0), "n3": observed(OTHER)}

    assert planning.place(recipe(), [], fleet) == ("n2", "n3")


def test_a_node_with_a_gpu_and_then_one_with_the_model_goes_before_a_freer_one() -> None:
    fleet = {
        "free": without_model(),
        "model": observed(memory_available_gib=50.0),
        "gpu": without_model(gpu="runtime", memory_available_gib=20.0),
    }

    assert planning.place(recipe(), [], fleet) == ("model",)
    assert planning.place(recipe(image={"torch": CUDA}), [], fleet) == ("gpu",)


def test_nodes_whose_images_hold_different_packages_are_refused() -> None:
    """Both are builds of the same inputs, and one found newer versions of what nobody had pinned."""
    one, other = (replace(observed(), installed=f"torch 2.13.0+cpu, packages {each * 12}") for each in "ab")

    assert planning.deploy(release(), {"n1": one, "n2": one}).replicas
    assert planning.deploy(
        release(), {"n1": one, "n2": observed()}
    ).replicas  # of an older sparkops, which said nothing
    with pytest.raises(PlanRefused, match=r"the nodes do not have the same packages in .*: n1: .*; n2: ") as refused:
        planning.deploy(release(), {"n1": one, "n2": other})
    assert refused.value.next_step.startswith("sparkops lock q, ")
