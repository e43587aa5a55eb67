"""`sparkops lint` as a user meets it: arguments in; exit code, stdout and stderr out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from sparkops.lint.report import rules_page
from sparkops.lint.rules.table import NAMES
from tests.cli.conftest import Sparkops, sparkops
from tests.examples import RECIPE
from tests.lint.cases import SLIM

__all__ = ["sparkops"]  # the fixture

ROOT = Path(__file__).parents[2]
BAD = "FROM debian\n"
LATEST = (
    "image debian has no tag and means `latest`, expected a version or a digest",
    "FROM debian:VERSION, or @sha256:DIGEST",
)
PINNED = {**RECIPE, "model": {"id": "org/q", "path": "q", "revision": "a" * 40}}


def write(**files: str) -> None:
    """Files by path, with __ for a slash and ___ for a dot."""
    for name, text in files.items():
        file = Path(name.replace("___", ".").replace("__", "/"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_findings_are_data_and_end_with_1(sparkops: Sparkops) -> None:
    write(Dockerfile=BAD)

    ran = sparkops("lint", "Dockerfile")

    assert (ran.code, ran.out, ran.err) == (
        1,
        f"Dockerfile:1: latest: {LATEST[0]}\n    fix: {LATEST[1]}\n",
        "1 finding in 1 of 1 file\n",
    )


SPECIAL: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": lambda file: socket.socket(socket.AF_UNIX).bind(str(file)),
    "device": lambda file: file.symlink_to("/dev/zero"),
    "large": lambda file: file.write_bytes(b"#" * (16 * 2**20 + 1)),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", ["Dockerfile", "q.yaml", "q.lock"])
def test_a_file_of_another_kind_or_size_is_refused_at_once(sparkops: Sparkops, kind: str, name: str) -> None:
    SPECIAL[kind](Path(name))
    if name == "q.lock":
        write(q___yaml=yaml.safe_dump(PINNED))

    ran = sparkops("lint", "q.yaml" if name == "q.lock" else name)

    reasons = ("larger than",) if kind == "large" else ("expected a regular file", "No such device")  # ENXIO: a socket
    assert (ran.code, any(reason in ran.err for reason in reasons)) == (2, True), ran.err


def test_no_findings_end_with_0(sparkops: Sparkops) -> None:
    write(Dockerfile=SLIM)

    ran = sparkops("lint", "Dockerfile")

    assert (ran.code, ran.out, ran.err) == (0, "", "1 file: no findings\n")


def test_json_is_one_object_by_either_option(sparkops: Sparkops) -> None:
    write(Dockerfile=BAD)
    finding = {"file": "Dockerfile", "line": 1, "rule": "latest", "problem": LATEST[0], "fix": LATEST[1]}
    expected = {"files": 1, "findings": [finding], "unreadable": []}

    short, long = sparkops("lint", "Dockerfile", "--json"), sparkops("lint", "Dockerfile", "--format", "json")

    assert (short.code, short.json, long.json) == (1, expected, expected)


def test_sarif_is_printed_whole_and_ends_as_text_does(sparkops: Sparkops) -> None:
    write(Dockerfile=BAD)

    ran = sparkops("lint", "--format", "sarif", "Dockerfile")

    assert (ran.code, ran.json["version"], len(ran.json["runs"][0]["results"])) == (1, "2.1.0", 1)


def test_a_directory_is_searched_for_dockerfiles_and_recipes(sparkops: Sparkops) -> None:
    recipe = yaml.safe_dump({**PINNED, "image": {**RECIPE["image"], "base": "debian"}})
    write(
        a__Dockerfile=BAD,
        a__b__Dockerfile___cuda=BAD,
        a__x___Dockerfile=BAD,
        a__recipes__q___yaml=recipe,
        a__Dockerfile___j2=BAD,
        a__Dockerfile___dockerignore=BAD,
        a__dockerfile___patch=BAD,
        a__other___yaml="nodes: {}\n",
        a___hidden__Dockerfile=BAD,
        a__text=BAD,
    )

    report = sparkops("lint", "a", "--json").json

    assert {finding["file"] for finding in report["findings"]} == {
        "a/Dockerfile",
        "a/b/Dockerfile.cuda",
        "a/recipes/q.yaml",
        "a/x.Dockerfile",
    }
    assert report["files"] == 4


NAMED = ("Dockerfile-arm64", "Dockerfile_dev", "dockerfile", "gpu.dockerfile", "Containerfile", "Containerfile.cuda")
OTHERS = ("Dockerfile.md", "Dockerfile.sh", "Dockerfiles", "my-Dockerfile-notes.txt", "Dockerfile.yaml")


def test_a_directory_is_searched_for_names_as_people_write_them(sparkops: Sparkops) -> None:
    for name in (*NAMED, *OTHERS):
        Path(name).write_text(BAD)

    assert {finding["file"] for finding in sparkops("lint", ".", "--json").json["findings"]} == set(NAMED)


def test_without_arguments_the_recipes_and_dockerfiles_of_the_project_are_read(sparkops: Sparkops) -> None:
    write(recipes__q___yaml=yaml.safe_dump(RECIPE), Dockerfiles__x___Dockerfile=BAD)

    files = {finding["file"] for finding in sparkops("lint", "--json").json["findings"]}

    assert {"recipes/q.yaml", "Dockerfiles/x.Dockerfile"} <= files


@pytest.mark.local
def test_a_dash_is_a_dockerfile_on_stdin() -> None:
    argv = [sys.executable, "-m", "sparkops", "lint", "-"]

    ran = subprocess.run(argv, input=BAD, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout.splitlines()[0]) == (1, f"-:1: latest: {LATEST[0]}")


@pytest.mark.local
def test_stdin_without_an_end_is_refused() -> None:
    with Path("/dev/zero").open("rb") as endless:
        argv = [sys.executable, "-m", "sparkops", "lint", "-"]
        ran = subprocess.run(argv, stdin=endless, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "larger than" in ran.stderr


def test_rules_are_chosen_by_name(sparkops: Sparkops) -> None:
    write(Dockerfile=BAD + "RUN git clone https://h/x && apt-get update\n")

    def rules(*options: str) -> list[str]:
        return [finding["rule"] for finding in sparkops("lint", "Dockerfile", "--json", *options).json["findings"]]

    assert rules() == ["latest", "apt-lists", "git-pin"]
    assert rules("--rule", "latest", "--rule", "git-pin") == ["latest", "git-pin"]
    assert rules("--ignore", "latest", "--ignore", "git-pin") == ["apt-lists"]
    assert sparkops("lint", "Dockerfile", "--rule", "secret").code == 0


@pytest.mark.parametrize(
    ("argv", "err"),
    [
        (
            ["--rule", "torch-pins", "Dockerfile"],
            "unknown rule torch-pins\n  next: Did you mean torch-pin? All rules: sparkops lint --rules\n",
        ),
        (["--format", "xml", "Dockerfile"], "--format: unknown format xml, expected one of: text, json, sarif\n"),
        (
            ["Dockerfile", "none"],
            "file not found: none\n  next: Correct the path, or check all: sparkops lint\n",
        ),
        (["empty"], "empty has no Dockerfile or recipe\n  next: Pass the files by name.\n"),
    ],
)
def test_an_unknown_rule_format_or_file_is_bad_input(sparkops: Sparkops, argv: list[str], err: str) -> None:
    write(Dockerfile=BAD, empty__x="")

    ran = sparkops("lint", *argv)

    assert (ran.code, ran.out, ran.err) == (2, "", f"sparkops: {err}")


LACKING = ("description", "model", "memory", "verified")


def test_a_file_that_cannot_be_read_is_bad_input_and_the_others_are_looked_at(sparkops: Sparkops) -> None:
    write(d__Dockerfile=BAD, d__recipes__a___yaml="name: a\nservce: x\nimage:\n", d__recipes__b___yaml="image: [\n")
    Path("d/Dockerfile.latin").write_bytes(b"FROM a:1\n# \xe9\n")
    Path("d/gone.yaml").symlink_to("nowhere")
    errors = [
        "d/Dockerfile.latin is not text in UTF-8",
        "d/gone.yaml:1: cannot be read: No such file or directory",
        "d/recipes/a.yaml:2: servce: unknown key, did you mean 'service'?\n"
        "d/recipes/a.yaml:3: image: expected a mapping of keys to values, got None\n"
        + "\n".join(f"d/recipes/a.yaml:1: {key}: missing, but required" for key in LACKING),
        "d/recipes/b.yaml:2: not YAML: expected the node content, but found '<stream end>'",
    ]

    ran = sparkops("lint", "d", "--json")

    assert (ran.code, [finding["rule"] for finding in ran.json["findings"]]) == (2, ["latest"])
    assert ran.json["unreadable"] == errors
    assert all(error in ran.err for error in errors)


def test_rules_are_shown_with_their_reasons(sparkops: Sparkops) -> None:
    shown, data = sparkops("lint", "--rules"), sparkops("lint", "--rules", "--json")

    assert (shown.code, shown.out) == (0, rules_page())
    assert [rule["name"] for rule in data.json["rules"]] == list(NAMES)


def test_the_same_file_named_twice_is_read_once(sparkops: Sparkops) -> None:
    write(Dockerfile=BAD)

    assert sparkops("lint", "Dockerfile", "Dockerfile", "--json").json["files"] == 1


def test_every_dockerfile_of_a_directory_is_checked(sparkops: Sparkops) -> None:
    text = (ROOT / "Dockerfiles/122b-autoround.Dockerfile").read_text()
    write(**{f"many__{number}___Dockerfile": text for number in range(99)}, many__bad___Dockerfile=BAD)

    ran = sparkops("lint", "many", "--json")

    assert (ran.code, ran.json["files"]) == (1, 100)
    assert [finding["rule"] for finding in ran.json["findings"]] == ["latest"]


def test_our_own_project_is_clean(sparkops: Sparkops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    ran = sparkops("lint", "--json")

    assert (ran.code, ran.json["findings"]) == (0, [])
