"""What is told to the guard's node, word for word."""

from __future__ import annotations

from sparkops import __version__
from sparkops.commands import guard
from tests.examples import IMAGE_ID, INPUTS

RIGHTS = (
    "--cap-drop=ALL --security-opt=no-new-privileges --read-only --tmpfs=/tmp"
    " --mount=type=bind,source=/var/run/docker.sock,target=/var/run/docker.sock"
)


def test_the_container_has_the_socket_and_no_other_right() -> None:
    command = guard.run(IMAGE_ID, INPUTS, "spark-1")

    assert str(command) == (
        "docker run --detach --name=sparkops-guard"
        f" --label=sparkops.recipe=guard --label=sparkops.inputs={INPUTS} --label=sparkops.version={__version__}"
        f" --label=sparkops.node=spark-1 --network=host --restart=always {RIGHTS}"
        " --mount=type=bind,source=/proc/sys/kernel/random/boot_id,target=/run/boot_id,readonly"
        " --volume=sparkops-state:/var/lib/sparkops --env=SPARKOPS_NODE=spark-1 --stop-timeout=10"
        f" --log-driver=json-file --log-opt=max-size=20m --log-opt=max-file=5 {IMAGE_ID}"
    )
    assert (command.changes, command.timeout_s) == (True, 120.0)


def test_an_image_is_asked_with_the_rights_that_its_container_will_have() -> None:
    command = guard.ask_image(IMAGE_ID)

    assert command.argv[2:-3] == ("--rm", "--network=none", *RIGHTS.split(), IMAGE_ID)
    assert command.argv[-3:] == (
        "sh",
        "-c",
        "python3 -m sparkops.guard serve </dev/null && docker version --format '{{.Server.Version}}'",
    )


def test_a_deploy_speaks_through_a_stream_that_changes_nothing_by_itself() -> None:
    assert str(guard.SERVE) == "docker exec --interactive sparkops-guard python3 -m sparkops.guard serve"
    assert str(guard.READY) == "docker exec sparkops-guard python3 -m sparkops.guard serve"
    assert (guard.SERVE.changes, guard.READY.changes) == (False, False)


def test_stop_and_remove_leave_the_volume() -> None:
    assert [str(guard.stop()), str(guard.remove())] == ["docker stop sparkops-guard", "docker rm sparkops-guard"]
