"""What is told to the guard's node, word for word."""

from __future__ import annotations

import pytest

from sparkops import __version__
from sparkops.gateway.gateway_version import gateway_version
from sparkops.guard.replacing import parse
from sparkops.node.agents import commands as guard
from sparkops.node.agents.replaceable import Replaceable, guard_version
from tests.examples import IMAGE_ID, INPUTS

RIGHTS = (
    "--cap-drop=ALL --cap-add=NET_ADMIN --security-opt=no-new-privileges --read-only --tmpfs=/tmp"
    " --mount=type=bind,source=/var/run/docker.sock,target=/var/run/docker.sock"
)


def test_the_container_has_the_socket_and_no_other_right() -> None:
    command = guard.run(IMAGE_ID, INPUTS, "spark-1")

    assert str(command) == (
        "docker run --detach --name=sparkops-guard"
        f" --label=sparkops.recipe=guard --label=sparkops.inputs={INPUTS} --label=sparkops.version={__version__}"
        f" --label=sparkops.node=spark-1 --network=host --restart=always {RIGHTS}"
        " --mount=type=bind,source=/proc/sys/kernel/random/boot_id,target=/run/boot_id,readonly"
        " --volume=sparkops-state:/var/lib/sparkops --volume=/run/sparkops:/run/sparkops"
        " --env=SPARKOPS_NODE=spark-1 --stop-timeout=10"
        f" --log-driver=json-file --log-opt=max-size=20m --log-opt=max-file=5 {IMAGE_ID}"
    )
    assert (command.changes, command.timeout_s) == (True, 120.0)


def test_an_image_is_asked_with_the_rights_that_its_container_will_have() -> None:
    command = guard.check_image(IMAGE_ID)

    assert command.argv[2:-3] == ("--rm", "--network=none", *RIGHTS.split(), IMAGE_ID)
    assert command.argv[-3:] == (
        "sh",
        "-c",
        "python3 -c 'import sparkops.guard.daemon, sparkops.guard.replacing'"
        " && docker version '--format={{.Server.Version}}'",
    )


def test_an_operator_asks_through_a_stream_that_changes_nothing_by_itself() -> None:
    assert str(guard.RELAY) == "docker exec --interactive sparkops-guard python3 -m sparkops.guard.ask"
    assert guard.RELAY.changes is False


def test_the_questions_of_a_deploy_beforehand_change_nothing() -> None:
    assert str(guard.REACHES) == "docker exec sparkops-guard docker version '--format={{.Server.Version}}'"
    assert guard.READY.argv == (
        *("docker", "exec", "sparkops-guard", "sh", "-c"),
        "python3 -m sparkops.guard.ask </dev/null && docker version '--format={{.Server.Version}}'",
    )
    assert (guard.REACHES.changes, guard.READY.changes) == (False, False)


def test_the_program_that_replaces_a_guard_is_started_again_until_it_says_that_it_has_ended() -> None:
    assert str(guard.replace(IMAGE_ID, guard.CONTAINER, IMAGE_ID, *guard_version("spark-1", INPUTS).arguments)) == (
        f"docker run --detach --name=sparkops-guard-replacement --network=none --restart=always {RIGHTS}"
        f" --log-driver=json-file --log-opt=max-size=20m --log-opt=max-file=5 {IMAGE_ID}"
        f" python3 -m sparkops.guard.replacing {IMAGE_ID} guard spark-1 {INPUTS}"
    )


def test_the_program_that_replaces_a_gateway_has_the_rights_of_that_of_a_guard() -> None:
    arguments = gateway_version("spark-1", INPUTS, "1536").arguments

    assert str(guard.replace(IMAGE_ID, "sparkops-gateway", "sha256:b", *arguments)) == (
        f"docker run --detach --name=sparkops-gateway-replacement --network=none --restart=always {RIGHTS}"
        f" --log-driver=json-file --log-opt=max-size=20m --log-opt=max-file=5 {IMAGE_ID}"
        f" python3 -m sparkops.guard.replacing sha256:b gateway spark-1 {INPUTS} 1536"
    )


@pytest.mark.parametrize("version", [guard_version("n1", INPUTS), gateway_version("n1", INPUTS, "1536")])
def test_the_program_derives_the_version_from_its_arguments(version: Replaceable) -> None:
    derived = parse(*version.arguments)

    assert (derived.container, derived.labels, derived.run("a")) == (
        version.container,
        version.labels,
        version.run("a"),
    )


def test_a_restart_leaves_the_volume() -> None:
    assert (str(guard.RESTART), guard.RESTART.changes) == ("docker restart sparkops-guard", True)
