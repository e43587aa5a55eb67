"""What the gateway's node is told, word for word."""

from __future__ import annotations

import json

import pytest

from sparkops.command import Command
from sparkops.gateway import commands
from sparkops.gateway.commands import Endpoint
from sparkops.names import Slot
from sparkops.operator.build.gateway.files import load_templates
from sparkops.swap.effects import RequestHold

EXEC = "docker exec sparkops-gateway gateway "
RELEASE = "chat-0123456789"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (commands.SHOW, EXEC + "show"),
        (commands.PROBE_EACH, "docker exec --interactive sparkops-gateway gateway probe-each"),
        (commands.switch("chat", Slot.GREEN, RELEASE), EXEC + "switch chat green chat-0123456789"),
        (commands.switch_down("chat"), EXEC + "switch chat down"),
        (commands.switch_down("chat", stopped=True), EXEC + "switch chat down stopped"),
        (commands.hold("chat", RequestHold("1.2+", 300.0, 540.0, 500)), EXEC + "hold chat 1.2+ 300 540 500"),
        (commands.cut("chat", Slot.BLUE), EXEC + "cut chat blue"),
        (commands.forget("chat"), EXEC + "forget chat"),
        (commands.preview("chat", Slot.GREEN), EXEC + "preview chat green /v1/models"),
        (
            commands.point(
                "chat", Slot.BLUE, RELEASE, [Endpoint("10.0.0.1", 8001, "chat-old"), Endpoint("fd00::2", 8001, RELEASE)]
            ),
            EXEC + "point chat blue chat-0123456789 10.0.0.1:8001=chat-old '[fd00::2]:8001'",
        ),
        (
            commands.configure({"keys": "AB\n", "tls.pem": None}),
            "docker exec --interactive sparkops-gateway gateway configure",
        ),
        (
            commands.check_image("sha256:a", {}),
            "docker run --rm --interactive --network=none --log-driver=none --read-only"
            " --tmpfs=/run/gateway:uid=10842,gid=10842,mode=0700 --cap-drop=ALL --security-opt=no-new-privileges"
            " --tmpfs=/var/lib/gateway:uid=10842,gid=10842,mode=0700 sha256:a try",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_command_is_this_line(command: Command, line: str) -> None:
    assert str(command) == line


def test_the_container_runs_with_no_rights() -> None:
    command = commands.run("sha256:a", "ab")

    assert command.argv[2:] == (
        "--detach",
        "--name=sparkops-gateway",
        "--label=sparkops.recipe=gateway",
        "--label=sparkops.inputs=ab",
        *(word for word in command.argv if word.startswith("--label=sparkops.version=")),
        "--label=sparkops.memory-mib=1536",
        "--network=host",
        "--restart=always",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--read-only",
        "--memory=1536m",
        "--memory-swap=1536m",
        "--tmpfs=/run/gateway:uid=10842,gid=10842,mode=0700",
        "--volume=sparkops-gateway:/var/lib/gateway",
        "--stop-timeout=20",
        "--log-driver=json-file",
        "--log-opt=max-size=20m",
        "--log-opt=max-file=5",
        "sha256:a",
    )


def test_no_label_makes_it_look_like_an_engine() -> None:
    assert not [word for word in commands.run("sha256:a", "ab").argv if "sparkops.service" in word]


def test_files_go_by_stdin_only() -> None:
    command = commands.configure({"keys": "SECRET\n", "tls.pem": None})

    assert json.loads(command.stdin) == {"keys": "SECRET\n", "tls.pem": None}
    assert "SECRET" not in str(command) + repr(command)


def test_looking_changes_nothing_and_all_else_does() -> None:
    assert commands.SHOW.changes is False
    assert commands.switch_down("chat").changes


def test_the_image_has_the_user_that_the_memory_belongs_to() -> None:
    assert f"USER {commands.USER}:{commands.USER}\n" in load_templates()["gateway/Dockerfile.j2"]
