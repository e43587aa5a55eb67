"""The commands about model directories, and programs that are sent with their command."""

from __future__ import annotations

import json
import subprocess
import sys

from sparkops.config.model import Step, Weights
from sparkops.node.program import BOOT, python
from sparkops.operator.build.weights import commands

MODULES = {"a": "X = 'from a'", "b": "import a, json, sys\nprint(a.X, json.loads(sys.stdin.readline()))"}
INSIDE = commands.container("/srv/models", "sha256:abc", (1000, 1001), network="none", task="prepare")
WEIGHTS = Weights(id="org/q", revision="abc", path="q", exclude=["original/*"])
STEP = Step(script="add-tensors", inputs={"base": "b", "donor": "d/e"}, output="q", args={"count": 2}, disk_gb=1.0)


def request(stdin: bytes) -> object:
    return json.loads(stdin.splitlines()[1])


def test_a_program_runs_with_its_modules_and_is_asked_on_stdin() -> None:
    command = python(MODULES, {"secret": 1}, interpreter=(sys.executable,))
    ran = subprocess.run(command.argv, input=command.stdin, capture_output=True, check=True)

    assert ran.stdout == b"from a {'secret': 1}\n"
    assert "secret" not in str(command)


def test_looking_is_no_change_and_giving_a_name_is() -> None:
    look, publish = commands.look("/srv/models", ["q"]), commands.publish("/srv/models", "q")

    assert look.argv == publish.argv == ("python3", "-c", BOOT)
    assert request(look.stdin) == {"verb": "look", "root": "/srv/models", "paths": ["q"]}
    assert request(publish.stdin) == {"verb": "publish", "root": "/srv/models", "path": "q"}
    assert (look.changes, publish.changes) == (False, True)


def test_a_container_works_as_the_user_whom_the_files_belong_to() -> None:
    assert " ".join(INSIDE) == (
        "docker run --rm --interactive --label=sparkops.task=prepare --network=none --user=1000:1001 --env=HOME=/tmp "
        "--cap-drop=ALL --security-opt=no-new-privileges --mount=type=bind,source=/srv/models,target=/models "
        "--entrypoint=python sha256:abc"
    )


def test_the_token_is_nowhere_but_in_stdin() -> None:
    command = commands.pull(INSIDE, WEIGHTS, "hf_secret", "https://mirror.example")

    assert "hf_secret" not in str(command) + repr(command)
    assert command.argv == (*INSIDE, "-c", BOOT)
    assert request(command.stdin) == {
        "id": "org/q",
        "revision": "abc",
        "include": [],
        "exclude": ["original/*"],
        "directory": "/models/q",
        "token": "hf_secret",
        "endpoint": "https://mirror.example",
    }


def test_a_step_reads_and_writes_under_the_model_directory_only() -> None:
    assert request(commands.take_step(INSIDE, STEP, {"made": "d1"}).stdin) == {
        "inputs": {"base": "/models/b", "donor": "/models/d/e"},
        "output": "/models/q.partial",
        "args": {"count": 2},
        "marker": {"made": "d1"},
    }
