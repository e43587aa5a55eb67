"""The commands about images on their way and on their way out, exactly."""

from __future__ import annotations

import json

from sparkops.images import commands
from sparkops.prune import commands as prune


def test_an_image_is_saved_by_its_id_through_a_program_that_leaves_layers_out() -> None:
    made = commands.save_image("print(1)", "sha256:1", 2, ("blobs/sha256/a", "blobs/sha256/b", "blobs/sha256/c"))

    assert made.argv[:3] == ("python3", "-c", "print(1)")
    assert json.loads(made.argv[3]) == {
        "image": "sha256:1",
        "held": 2,
        "named": ["blobs/sha256/a", "blobs/sha256/b", "blobs/sha256/c"],
    }
    assert made.asked()["called"] == "docker save"


def test_docker_s_store_is_read_by_a_container_that_can_do_nothing_else() -> None:
    made = commands.read_layers("print(1)", "/var/lib/docker", "sha256:guard", "sha256:1", 1, ("sha256:a", "sha256:b"))

    assert made.argv[:-1] == (
        *("docker", "run", "--rm", "--interactive", "--network=none", "--log-driver=none", "--pull=never"),
        *("--user=0", "--read-only", "--cap-drop=ALL", "--cap-add=DAC_READ_SEARCH", "--security-opt=no-new-privileges"),
        "--mount=type=bind,source=/var/lib/docker/image/overlay2,target=/store/image,readonly",
        "--mount=type=bind,source=/var/lib/docker/overlay2,target=/store/layers,readonly",
        *("--entrypoint=python3", "sha256:guard", "-c", "print(1)"),
    )
    assert json.loads(made.argv[-1]) == {"image": "sha256:1", "held": 1, "layers": ["sha256:a", "sha256:b"]}


def test_it_is_loaded_through_a_program_that_takes_one_image_without_a_name() -> None:
    made = commands.load("print(1)")

    assert made.argv == ("python3", "-c", "print(1)", "docker", "load", "--quiet")
    assert made.asked()["called"] == "docker load"


def test_what_is_removed_is_never_forced() -> None:
    assert str(prune.image(["sparkops/q:1", "sparkops/q:2"])) == "docker rmi sparkops/q:1 sparkops/q:2"
    assert str(prune.volume("sparkops-cache-1")) == "docker volume rm sparkops-cache-1"
    assert str(prune.build_cache(5)) == "docker builder prune --force --all --keep-storage=5"
    assert all(each.changes for each in (prune.image(["a"]), prune.volume("a"), prune.build_cache(1)))
