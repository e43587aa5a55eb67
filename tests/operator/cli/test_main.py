"""Global options, exit codes, and what a person is told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from sparkops import __version__
from sparkops.config import assets
from sparkops.operator.cli.main import app
from sparkops.operator.cli.options import seconds
from tests.operator.cli.conftest import Sparkops

VERBS = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
IMPORTS = "import sys, time\nfrom sparkops.operator.cli.main import app, main\n"
MAIN = IMPORTS + "{verb}\nsys.argv = ['sparkops', {argv}]; main()"


def program(verb: str, *argv: str) -> list[str]:
    """sparkops as a program, with one verb more."""
    return [sys.executable, "-c", MAIN.format(verb=verb, argv=", ".join(map(repr, argv)))]


def test_version(sparkops: Sparkops) -> None:
    assert sparkops("--version").out == f"sparkops {__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(sparkops: Sparkops, verb: str) -> None:
    ran = sparkops(verb, "--help")

    assert (ran.code, ran.err) == (0, "")
    assert f" {verb} " in ran.out.splitlines()[0]


def test_without_a_verb_the_help_is_no_error(sparkops: Sparkops) -> None:
    ran = sparkops()

    assert (ran.code, ran.err) == (0, "")
    assert ran.out == sparkops("--help").out


@pytest.mark.parametrize(
    "argv", [["nope"], ["status", "--nope"], ["recipe", "show"], ["logs", "x", "--tail", "y"]], ids=str
)
def test_a_wrong_command_line_ends_with_2(sparkops: Sparkops, argv: list[str]) -> None:
    assert sparkops(*argv).code == 2


@pytest.mark.parametrize(
    ("argv", "problem", "step"),
    [
        (["status", "--nope"], "status: unknown option: --nope", "sparkops status --help"),
        (
            ["deploy", "x", "--detatch"],
            "deploy: unknown option: --detatch",
            "Did you mean --detach? `sparkops deploy --help` lists all.",
        ),
        (["status", "--follow"], "--follow: SERVICE is missing", "sparkops status SERVICE --follow"),
        (["logs"], "logs: SERVICE is missing", "sparkops logs --help"),
        (["models", "copy", "x"], "models copy: --from is missing", "sparkops models copy --help"),
        (["rollback", "one", "two"], "rollback: unexpected argument: two", "sparkops rollback --help"),
        (["stop", "x", "--wait"], "--wait: its value is missing", "sparkops stop --help"),
    ],
    ids=str,
)
def test_a_wrong_command_line_is_answered_like_every_other_error(
    sparkops: Sparkops, argv: list[str], problem: str, step: str
) -> None:
    ran = sparkops(*argv)

    assert (ran.code, ran.out, ran.err) == (2, "", f"sparkops: {problem}\n  next: {step}\n")


@pytest.mark.parametrize(
    "argv",
    [["stop", "x", "--json"], ["deploy", "x", "--json", "--nope"], ["recipe", "show", "nope", "--json"]],
    ids=str,
)
def test_a_refusal_is_printed_as_json_where_json_was_asked_for(sparkops: Sparkops, argv: list[str]) -> None:
    ran = sparkops(*argv)

    assert ran.code == ran.json["exit_code"] == 2
    steps = "".join(f"  next: {step}\n" for step in ran.json["next"])
    assert ran.err == f"sparkops: {ran.json['error']}\n{steps}"
    assert steps


@pytest.mark.parametrize(
    "argv", [["status", "-i", "other.yaml"], ["node", "trust", "--inventory", "other.yaml"]], ids=str
)
def test_global_options_may_follow_the_verb(sparkops: Sparkops, argv: list[str]) -> None:
    assert sparkops(*argv).err.startswith("sparkops: inventory not found: other.yaml\n")
    assert sparkops("-i", "first.yaml", *argv, "-v", "--no-color").err.startswith(
        "sparkops: inventory not found: other.yaml\n"
    )


@pytest.mark.local
def test_a_full_disk_behind_stdout_is_named() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "sparkops", "--help"]
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (1, "sparkops: stdout: cannot be written: No space left on device\n")


def test_a_negative_number_of_lines_is_refused(sparkops: Sparkops) -> None:
    ran = sparkops("logs", "x", "--tail", "-1")

    assert ran.code == 2
    assert "sparkops: --tail: expected a whole number of at least 0; got '-1'" in " ".join(ran.err.split())


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "-1", "1e7", "1e400"])
@pytest.mark.parametrize(
    "argv",
    [["deploy", "x", "--wait"], ["rollback", "x", "--wait"], ["prune", "--wait"]],
    ids=str,
)
def test_a_number_out_of_range_is_refused_where_it_is_read(sparkops: Sparkops, argv: list[str], number: str) -> None:
    ran = sparkops(*argv, number)

    assert ran.code == 2
    assert f"sparkops: {argv[-1]}: expected a number from 0 to 1000000; got {float(number)}" in " ".join(
        ran.err.split()
    )


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("stop", "x", "--wait", "soon"), "expected seconds, or a time span such as 90s, 10m or 1h30m; got 'soon'"),
        (("stop", "x", "--wait", ""), "expected seconds, or a time span such as 90s, 10m or 1h30m; got ''"),
        (("logs", "x", "--tail", "x"), "expected a whole number of at least 0; got 'x'"),
        (("demo", "--port", "80"), "expected a whole number from 1024 to 65000; got '80'"),
    ],
)
def test_a_wrong_amount_is_answered_with_the_expected_form(
    sparkops: Sparkops, argv: tuple[str, ...], expected: str
) -> None:
    ran = sparkops(*argv)

    assert ran.code == 2
    assert f"sparkops: {argv[-2]}: {expected}" in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("text", "expected_s"), [("90", 90), ("0.5", 0.5), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1h0m1.5s", 3601.5)]
)
def test_a_wait_is_seconds_or_a_time_span(text: str, expected_s: float) -> None:
    assert seconds(text) == expected_s


NEEDS_INVENTORY = [
    ["status"],
    ["build", "x"],
    ["plan", "x"],
    ["deploy", "x"],
    ["stop", "x"],
    ["logs", "x"],
    ["node", "trust"],
]


@pytest.mark.parametrize("argv", NEEDS_INVENTORY, ids=" ".join)
def test_a_missing_inventory_says_how_to_make_one(sparkops: Sparkops, argv: list[str]) -> None:
    ran = sparkops(*argv)

    step = "Create one with `sparkops init`, or pass --inventory FILE."
    assert (ran.code, ran.err) == (2, f"sparkops: inventory not found: inventory.yaml\n  next: {step}\n")


def test_the_inventory_may_come_from_the_environment(sparkops: Sparkops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKOPS_INVENTORY", "other.yaml")

    assert sparkops("status").err.startswith("sparkops: inventory not found: other.yaml\n")


def test_a_broken_inventory_is_named_with_its_line(sparkops: Sparkops) -> None:
    Path("inventory.yaml").write_text("nodes:\n  a: {adress: h}\n")

    assert (sparkops("status").code, sparkops("status").err) == (
        2,
        "sparkops: inventory.yaml:2: nodes.a.adress: unknown key, did you mean 'address'?\n",
    )


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def refusing(closed_port: int, sparkops: Sparkops) -> str:
    """An inventory with a node that refuses connections; the reason as it is told."""
    assert callable(sparkops)  # which has gone to an empty directory
    node = f"{{address: 127.0.0.1, port: {closed_port}, user: ops}}"
    Path("inventory.yaml").write_text(f"nodes:\n  n1: {node}\n")
    return f"cannot connect to ops@127.0.0.1:{closed_port}: Connection refused"


def test_status_shows_a_node_that_refuses_and_ends_with_1(sparkops: Sparkops, refusing: str) -> None:
    ran = sparkops("status")

    head, row, *rest = ran.out.splitlines()
    where, _, port = refusing.split()[3].removesuffix(":").partition(":")
    assert (ran.code, ran.err) == (1, "")
    assert (head.split()[:2], row.split()) == (["NODE", "STATE"], ["n1", "unreachable", "-"])
    assert rest == [
        f"n1: {refusing}",
        f"  next: Test it with: ssh -p {port} {where}",
        "",
        "no service known: not every node could be read",
    ]


def test_status_in_json_says_the_same(sparkops: Sparkops, refusing: str) -> None:
    ran = sparkops("status", "--json")

    assert ran.code == 1
    [node] = ran.json["nodes"]
    assert (node["name"], node["reachable"], node["error"], node["memory"]) == ("n1", False, refusing, None)
    assert node["next_step"].startswith("Test it with: ssh -p ")
    assert ran.err == f"n1: {refusing}\n"


@pytest.mark.parametrize("argv", [["plan", "tiny-qwen3-cpu"], ["build", "tiny-qwen3-cpu"], ["stop", "tiny"]], ids=str)
def test_a_verb_that_needs_the_node_ends_with_5(sparkops: Sparkops, refusing: str, argv: list[str]) -> None:
    with Path("inventory.yaml").open("a") as file:
        file.write("gateway: {node: n1}\n")

    ran = sparkops(*argv)

    assert (ran.code, ran.out) == (5, "")
    assert ran.err.startswith(f"sparkops: n1: {refusing}\n  next: Test it with: ssh -p ")


@pytest.mark.usefixtures("refusing")
def test_a_node_that_is_not_in_the_inventory_is_a_wrong_command_line(sparkops: Sparkops) -> None:
    ran = sparkops("build", "tiny-qwen3-cpu", "--node", "n9")

    assert (ran.code, ran.err) == (2, "sparkops: inventory.yaml: unknown node 'n9', expected one of: n1\n")


@pytest.mark.usefixtures("refusing")
def test_a_dry_build_connects_to_nothing(sparkops: Sparkops) -> None:
    ran = sparkops("build", "tiny-qwen3-cpu", "--dry-run")

    assert ran.code == 0
    assert "sparkops/vllm:" in ran.err
    assert "docker build --progress=plain" in ran.err


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("verb", ["recipe render", "build"])
def test_a_template_without_a_timeout_in_one_stage_is_refused_before_a_node_is_asked(
    sparkops: Sparkops, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    templates = assets.load_templates()
    name = "vllm-cpu.Dockerfile.j2"
    stage = 'FROM debian AS late\nRUN uv pip install "$TORCH_PIN"\n'
    monkeypatch.setattr(assets, "load_templates", lambda: templates | {name: f"{stage}{templates[name]}"})

    ran = sparkops(*verb.split(), "tiny-qwen3-cpu")

    first, second = ran.err.splitlines()
    assert ran.code == 2
    assert first.startswith(f"sparkops: templates/{name}:2: stage late: UV_HTTP_TIMEOUT is not set, expected ENV UV_")
    assert second.startswith(f"templates/{name}:2: stage late: UV_OVERRIDE is not set, expected a file with torch==")
    assert not Path("Dockerfiles").exists()


@pytest.mark.local
def test_a_bug_of_ours_ends_with_3_and_a_traceback_in_a_file(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    verb = "@app.command()\ndef bug(): raise ZeroDivisionError('of http://u:s3cret@h')"

    ran = subprocess.run(program(verb, "bug"), capture_output=True, text=True, env=env, check=False)

    [saved] = tmp_path.glob("sparkops-bug-*.txt")
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        3,
        "",
        "sparkops: internal error: ZeroDivisionError: of http://***@h\n"
        f"  Traceback saved to {saved}; please report it.\n",
    )
    assert saved.read_text().endswith("ZeroDivisionError: of http://***@h\n")


FAILS = """
from sparkops.errors import InPlaceFailed, StartFailed
@app.command()
def fail():
    green = StartFailed('n1', 'green died')
    green.add_note('saved: here')
    raise InPlaceFailed('blue serves again') from green
"""


@pytest.mark.local
def test_where_a_failure_was_saved_is_told_also_of_the_error_behind_the_last_one() -> None:
    ran = subprocess.run(program(FAILS, "fail"), capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (6, "sparkops: blue serves again\n  saved: here\n")


@pytest.mark.local
def test_ctrl_c_ends_with_130() -> None:
    verb = "@app.command()\ndef wait(): print('waiting', flush=True); time.sleep(60)"
    with subprocess.Popen(program(verb, "wait"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)

        assert process.wait(120) == 130


@pytest.mark.local
def test_a_reader_that_has_gone_is_no_failure() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "sparkops", "recipe", "schema", "recipe"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()

        assert (process.wait(120), process.stderr.read()) == (0, b"")


@pytest.mark.local
@pytest.mark.parametrize(
    ("options", "env", "coloured"), [([], {}, True), (["--no-color"], {}, False), ([], {"NO_COLOR": "1"}, False)]
)
def test_colours_are_for_terminals_that_want_them(
    tmp_path: Path, *, options: list[str], env: dict[str, str], coloured: bool
) -> None:
    ours, theirs = os.openpty()
    inherited = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    command = [sys.executable, "-m", "sparkops", *options, "recipe", "show", "nope"]
    subprocess.run(command, stderr=theirs, cwd=tmp_path, env={**inherited, **env}, check=False)
    os.close(theirs)
    shown = os.read(ours, 4096)
    os.close(ours)

    assert (b"recipe not found: nope" in shown, b"\x1b[" in shown) == (True, coloured)


def test_a_gateway_is_rebuilt_only_where_the_inventory_names_it(sparkops: Sparkops, tmp_path: Path) -> None:
    nodes = "nodes: {n1: {address: 127.0.0.2}, n2: {address: 127.0.0.3}}\n"
    (tmp_path / "inventory.yaml").write_text(f"{nodes}gateway:\n  node: n1\n")

    refused = sparkops("gateway", "rebuild", "n2", "--without", "n1")

    assert refused.code == 2
    assert refused.err.splitlines()[0] == "sparkops: inventory.yaml:3: gateway.node: n1, expected n2"
    assert "Set `gateway.node: n2` there" in refused.err
    assert sparkops("gateway", "rebuild", "n1", "--without", "n1").code == 2
    (tmp_path / "inventory.yaml").write_text(nodes)
    assert "not set, expected n2" in sparkops("gateway", "rebuild", "n2").err
