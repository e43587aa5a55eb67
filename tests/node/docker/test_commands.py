"""Every docker command, as the one line that runs."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest

from sparkops import __version__
from sparkops.command import Command
from sparkops.config.release import Release, cache_volume
from sparkops.engines import runtime
from sparkops.engines.launch import Seat
from sparkops.node.docker import commands
from tests.examples import IMAGE_ID, INPUTS, node, rank, recipe


def test_create() -> None:
    serve = {"args": {"dtype": "bfloat16"}, "env": {"OMP_NUM_THREADS": "2"}}
    created = rank(serve=serve)

    command = commands.create(created, node(model_dir="/srv/my models"), IMAGE_ID, jobs=3)

    assert str(command) == (
        f"docker create --name={created.container}"
        f" --label=sparkops.service=chat --label=sparkops.release={created.release.id} --label=sparkops.recipe=q"
        f" --label=sparkops.slot=blue --label=sparkops.rank=0 --label=sparkops.port=8001 --label=sparkops.claim-gib=10"
        f" --label=sparkops.inputs={INPUTS} --label=sparkops.version={__version__}"
        " --network=host --restart=no --user=10841:10841 --cap-drop=ALL --security-opt=no-new-privileges"
        " --pids-limit=8192 --shm-size=16384m --stop-timeout=60"
        " --log-driver=json-file --log-opt=max-size=20m --log-opt=max-file=5"
        " '--volume=/srv/my models:/models:ro' --volume=sparkops-cache-q-0123456789ab:/home/engine/.cache"
        " --env=HF_HUB_OFFLINE=1 --env=VLLM_NO_USAGE_STATS=1"
        " --env=HOME=/home/engine --env=XDG_CACHE_HOME=/home/engine/.cache"
        " --env=VLLM_CACHE_ROOT=/home/engine/.cache/vllm"
        " --env=FLASHINFER_WORKSPACE_BASE=/home/engine --env=TRITON_CACHE_DIR=/home/engine/.cache/triton"
        " --env=TORCHINDUCTOR_CACHE_DIR=/home/engine/.cache/torchinductor"
        " --env=TILELANG_CACHE_DIR=/home/engine/.cache/tilelang"
        " --env=TVM_FFI_CACHE_DIR=/home/engine/.cache/tvm-ffi --env=CUTE_DSL_CACHE_DIR=/home/engine/.cache/cute-dsl"
        " --env=QUACK_CACHE_DIR=/home/engine/.cache/quack --env=CUDA_CACHE_PATH=/home/engine/.cache/cuda"
        " --env=MAX_JOBS=3 --env=TORCHINDUCTOR_COMPILE_THREADS=3 --env=TILELANG_AUTO_TUNING_MAX_CPU_COUNT=3"
        " --env=FLASHINFER_NVCC_THREADS=1 --env=OMP_NUM_THREADS=2"
        f" --entrypoint=vllm {IMAGE_ID}"
        " serve /models/q --host=0.0.0.0 --port=8001 --served-model-name=chat --dtype=bfloat16"
    )
    assert (command.changes, command.timeout_s) == (True, 120.0)


def test_the_recipe_may_change_what_sparkops_sets_in_the_environment() -> None:
    env = {"HF_HUB_OFFLINE": "0", "MAX_JOBS": "7"}
    line = str(commands.create(rank(serve={"env": env}), node(), IMAGE_ID, jobs=3))

    assert (line.count("HF_HUB_OFFLINE"), line.count("MAX_JOBS")) == (1, 1)
    assert "--env=HF_HUB_OFFLINE=0" in line
    assert "--env=MAX_JOBS=7" in line


def test_a_memory_limit_leaves_no_swap() -> None:
    argv = commands.create(rank(), node(), IMAGE_ID, jobs=1, memory_gib=20.5).argv

    assert [word for word in argv if word.startswith("--memory")] == ["--memory=20992m", "--memory-swap=20992m"]


def test_recipes_of_one_image_share_no_cache() -> None:
    names = [cache_volume(Release(recipe(name=name), INPUTS)) for name in ("q", "r-2")]

    assert names == ["sparkops-cache-q-0123456789ab", "sparkops-cache-r-2-0123456789ab"]


def test_every_cache_is_in_the_volume() -> None:
    added = {"FLASHINFER_WORKSPACE_BASE": "/.cache/flashinfer"}
    kept = [f"{path}{added.get(name, '')}" for name, path in runtime.CACHES.items()]

    assert [path for path in kept if path != runtime.CACHE and not path.startswith(f"{runtime.CACHE}/")] == []


def test_the_environment_of_the_node_replaces_that_of_the_recipe() -> None:
    own = {"HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "8"}
    argv = commands.create(rank(serve={"env": {"OMP_NUM_THREADS": "2"}}), node(env=own), IMAGE_ID, jobs=3).argv

    assert [word for word in argv if word.startswith(("--env=HF_HUB_OFFLINE", "--env=OMP_NUM_THREADS"))] == [
        "--env=HF_HUB_OFFLINE=0",
        "--env=OMP_NUM_THREADS=8",
    ]


def test_what_a_seat_sets_replaces_the_environment_of_the_node() -> None:
    seat = Seat("10.0.0.1", "10.0.0.1", {"VLLM_HOST_IP": "10.0.0.1"})
    paired = rank(serve={"tensor_parallel": 2, "executor": "mp"})
    argv = commands.create(paired, node(env={"VLLM_HOST_IP": "10.9.9.9", "A": "b"}), IMAGE_ID, 3, seat).argv

    assert [word for word in argv if word.startswith("--env=")][-2:] == ["--env=VLLM_HOST_IP=10.0.0.1", "--env=A=b"]


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ({"gpu": "none"}, ""),
        ({"gpu": None}, ""),
        ({"gpu": "runtime"}, "--gpus=all"),
        ({"gpu": "cdi"}, "--device=nvidia.com/gpu=all"),
        ({"gpu": "devices"}, ""),
        (
            {"gpu": "devices", "gpu_devices": ["/dev/nvidia0", "/dev/nvidiactl"], "gpu_mounts": ["/usr/lib/nv"]},
            "--device=/dev/nvidia0 --device=/dev/nvidiactl --volume=/usr/lib/nv:/usr/lib/nv:ro",
        ),
    ],
    ids=str,
)
def test_an_accelerator_reaches_the_container_as_the_inventory_says(mode: dict[str, Any], options: str) -> None:
    line = str(commands.create(rank(), node(**mode), IMAGE_ID, jobs=1))

    between = line.partition(":/home/engine/.cache ")[2].partition("--env=HF_HUB_OFFLINE")[0]
    assert between.strip() == options


@pytest.mark.parametrize(
    ("command", "line", "timeout_s"),
    [
        (commands.start("c"), "docker start c", 60.0),
        (commands.stop("c", 90), "docker stop --time=90 c", 150.0),
        (commands.set_restart("c", "always"), "docker update --restart=always c", 60.0),
        (commands.remove("c"), "docker rm c", 60.0),
        (commands.tag("sha256:1", "sparkops/q:1"), "docker tag sha256:1 sparkops/q:1", 60.0),
        (commands.remove_image("sparkops/q:1"), "docker rmi sparkops/q:1", 60.0),
        (commands.trust("sparkops/q:1", "sha256:a"), "docker volume create sparkops-trusted-q-1-a", 60.0),
        (
            commands.build("t", {"sparkops.recipe": "q"}, {"TORCH_BACKEND": ""}),
            "env DOCKER_BUILDKIT=1 BUILDX_BUILDER=default docker build --progress=plain --file=Dockerfile --tag=t"
            " --label=sparkops.recipe=q --build-arg=TORCH_BACKEND= -",
            4 * 3600.0,
        ),
        (
            commands.label("t", "sparkops/q:1", {"sparkops.mod.a": "already there"}),
            "env DOCKER_BUILDKIT=1 BUILDX_BUILDER=default docker build --quiet --tag=sparkops/q:1"
            " '--label=sparkops.mod.a=already there' -",
            120.0,
        ),
        (
            commands.check_image("t", b"print()"),
            "docker run --rm --interactive --network=none --user=10841:10841 --cap-drop=ALL"
            " --security-opt=no-new-privileges --pids-limit=8192 --memory=16g --memory-swap=16g --cpu-shares=64"
            " --env=HOME=/home/engine --entrypoint=python t -",
            600.0,
        ),
        (
            commands.read_file("t", "/a"),
            "docker run --rm --network=none --user=10841:10841 --cap-drop=ALL --security-opt=no-new-privileges"
            " --pids-limit=8192 --entrypoint=cat t /a",
            60.0,
        ),
    ],
    ids=str,
)
def test_what_changes_a_node(command: Command, line: str, timeout_s: float) -> None:
    assert (str(command), command.timeout_s, command.changes) == (line, timeout_s, True)


@pytest.mark.parametrize(
    ("follow", "tail", "line", "timeout_s"),
    [
        (False, None, "docker logs --tail=all c", 120.0),
        (False, 0, "docker logs --tail=0 c", 120.0),
        (True, 10, "docker logs --follow --tail=10 c", 30 * 24 * 3600.0),
    ],
)
def test_reading_logs_changes_nothing(*, follow: bool, tail: int | None, line: str, timeout_s: float) -> None:
    command = commands.logs("c", follow=follow, tail=tail)

    assert (str(command), command.timeout_s, command.changes) == (line, timeout_s, False)


def test_logs_since_a_time_with_the_time_of_each_line() -> None:
    command = commands.logs("c", follow=False, tail=None, since="10m", timestamps=True)

    assert str(command) == "docker logs --timestamps --since=10m --tail=all c"


def test_only_the_user_of_the_engine_may_read_a_file_that_is_put_into_its_container() -> None:
    command = commands.put("c", "/run/token", b"secret")

    with tarfile.open(fileobj=io.BytesIO(command.stdin)) as packed:
        [member] = packed.getmembers()
        content = packed.extractfile(member)
        assert content is not None
        assert (member.name, member.mode, content.read()) == ("token", 0o400, b"secret")
        assert (member.uid, member.gid) == (runtime.USER, runtime.USER)
    assert (str(command), command.changes) == ("docker cp - c:/run", True)


def test_a_container_can_be_created_under_another_name_and_renamed() -> None:
    command = Command(("docker", "create", "--label=a", "--name=c", "image", "--name=model"))

    assert str(commands.named(command, "c.new")) == "docker create --label=a --name=c.new image --name=model"
    assert str(commands.rename("c.new", "c")) == "docker rename c.new c"


def test_a_script_and_a_dockerfile_go_through_stdin() -> None:
    assert commands.check_image("t", b"print()").stdin == b"print()"
    with tarfile.open(fileobj=io.BytesIO(commands.label("t", "n", {}).stdin)) as archive:
        contents = {member.name: archive.extractfile(member) for member in archive}
    assert {name: file.read() for name, file in contents.items() if file} == {"Dockerfile": b"FROM t\n"}


def test_the_manifest_of_a_registry_is_read_by_the_node() -> None:
    command = commands.read_manifest("r/x:1")

    env = "env DOCKER_BUILDKIT=1 BUILDX_BUILDER=default"
    assert str(command) == f"{env} docker buildx imagetools inspect --raw r/x:1"
    assert not command.changes


def test_who_ended_a_container_is_read_from_docker_s_events() -> None:
    command = commands.stops("c", 1.5, 2.0)

    between = "--since=1.500000000 --until=2.000000000"
    filters = "--filter=container=c --filter=event=stop --filter=event=kill"
    assert (
        str(command)
        == f"docker events {between} {filters} '--format={{{{.Action}}}} {{{{index .Actor.Attributes \"signal\"}}}}'"
    )
    assert not command.changes
