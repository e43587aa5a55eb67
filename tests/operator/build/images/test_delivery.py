"""Commands that copy and remove images, exactly."""

from __future__ import annotations

import json

from sparkops.config import programs
from sparkops.operator.build.images import delivery


def test_an_image_is_saved_by_its_id_through_a_program_that_leaves_layers_out() -> None:
    [text] = programs.load(*programs.LAYERS).values()
    program = delivery.save_image("sha256:1", 2, ("blobs/sha256/a", "blobs/sha256/b", "blobs/sha256/c"))

    assert program.argv[:3] == ("python3", "-c", text)
    assert json.loads(program.argv[3]) == {
        "image": "sha256:1",
        "skip": 2,
        "names": ["blobs/sha256/a", "blobs/sha256/b", "blobs/sha256/c"],
    }
    assert program.called == "docker save"


def test_docker_s_store_is_read_by_a_container_that_can_do_nothing_else() -> None:
    [text] = programs.load(*programs.GRAPH).values()
    program = delivery.read_layers("/var/lib/docker", "sha256:guard", "sha256:1", 1, ("sha256:a", "sha256:b"))

    assert program.argv[:-1] == (
        *("docker", "run", "--rm", "--interactive", "--network=none", "--log-driver=none", "--pull=never"),
        *("--user=0", "--read-only", "--cap-drop=ALL", "--cap-add=DAC_READ_SEARCH", "--security-opt=no-new-privileges"),
        "--mount=type=bind,source=/var/lib/docker/image/overlay2,target=/store/image,readonly",
        "--mount=type=bind,source=/var/lib/docker/overlay2,target=/store/layers,readonly",
        *("--entrypoint=python3", "sha256:guard", "-c", text),
    )
    assert json.loads(program.argv[-1]) == {"image": "sha256:1", "skip": 1, "layers": ["sha256:a", "sha256:b"]}


def test_it_is_loaded_through_a_program_that_takes_one_image_without_a_name() -> None:
    [text] = programs.load(*programs.LOAD).values()
    program = delivery.load_image()

    assert program.argv == ("python3", "-c", text, "docker", "load", "--quiet")
    assert program.called == "docker load"
