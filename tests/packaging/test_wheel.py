"""The packages, built and installed in an environment of their own, work outside the sources."""

from __future__ import annotations

import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest

import sparkops

WHEEL_BYTES = 1_150_000
"""Maximum size of the wheel: a peer is tried if it is there at once."""
SOURCES = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
INSTALL = ("install", "--no-compile")  # most of the modules are never imported


@dataclass(frozen=True)
class Installed:
    """sparkops from its wheel, in an environment that holds nothing else; it runs in an empty directory."""

    dist: Path
    venv: Path
    directory: Path

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARKOPS"))}
        argv = (str(self.venv / "bin/sparkops"), *args)
        return subprocess.run(argv, cwd=self.directory, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    venv, dist = tmp_path_factory.mktemp("venv"), tmp_path_factory.mktemp("dist")
    python = venv / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    subprocess.run([*PIP, "--python", python, *INSTALL, "hatchling"], check=True)
    subprocess.run([python, "-m", "hatchling", "build", "--directory", dist], cwd=SOURCES, check=True)
    (wheel,) = dist.glob("sparkops-*.whl")
    subprocess.run([*PIP, "--python", python, *INSTALL, wheel], check=True)
    return Installed(dist, venv, tmp_path_factory.mktemp("empty"))


@pytest.mark.timeout(300)
def test_the_wheel_is_complete_outside_the_sources(installed: Installed) -> None:
    assert installed.run("--version").stdout.split()[-1] == sparkops.__version__
    assert "deploy" in installed.run("--help").stdout

    recipes = installed.run("recipes", "--json")
    assert recipes.returncode == 0, recipes.stderr
    listed = [row["name"] for row in json.loads(recipes.stdout)["recipes"]]
    assert sorted(listed) == sorted(file.stem for file in (SOURCES / "recipes").rglob("*.yaml"))
    for named in ("122b-fp8-tp2", "recipes/122b-fp8-tp2.yaml", "recipes/qwen3.5-122b/122b-fp8-tp2.yaml"):
        assert installed.run("show", named).stdout.startswith("name: 122b-fp8-tp2\n")

    rendered = installed.run("render", "--all", "--output", "Dockerfiles")
    assert rendered.returncode == 0, rendered.stderr
    assert files(installed.directory / "Dockerfiles") == files(SOURCES / "Dockerfiles")

    helped = installed.run("deploy", "--help")
    assert "Example: sparkops deploy" in helped.stdout

    planned = installed.run("plan", "122b-autoround")
    assert planned.returncode == 2
    assert "next: Create one with `sparkops init`" in planned.stderr


@pytest.mark.timeout(300)
def test_the_wheel_is_small_and_has_all_locks_in_one_archive(installed: Installed) -> None:
    (wheel,) = installed.dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        locks = json.loads(lzma.decompress(archive.read("sparkops/shipped/locks.json.xz")))
    recipes = SOURCES / "recipes"

    assert locks == {file.relative_to(recipes).as_posix(): file.read_text() for file in recipes.rglob("*.lock")}
    assert [name for name in names if name.endswith((".lock", ".pyc"))] == []
    assert {"sparkops/shipped/recipes/stand-in.yaml", "sparkops/shipped/templates/gate.py"} <= {*names}
    assert wheel.stat().st_size < WHEEL_BYTES

    listed = json.loads(installed.run("recipes", "--json").stdout)["recipes"]
    assert {recipe["name"] for recipe in listed if recipe["locked"]} == {Path(name).stem for name in locks}


@pytest.mark.timeout(300)
def test_the_metadata_is_complete_and_of_the_newest_version_in_the_changelog(installed: Installed) -> None:
    (wheel,) = installed.dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    stated = {"Summary", "Author", "License-Expression", "License-File", "Keywords", "Classifier", "Requires-Python"}

    assert {field for field in stated if not metadata[field]} == set()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("# sparkops\n")
    newest = re.search(r"^## \[(\d[\d.]+)\] - \d{4}-\d\d-\d\d$", (SOURCES / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert newest[1] == metadata["Version"] == sparkops.__version__


@pytest.mark.timeout(300)
def test_the_source_package_holds_what_its_own_tests_need(installed: Installed) -> None:
    (sdist,) = installed.dist.glob("sparkops-*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=SOURCES, check=True, capture_output=True, text=True).stdout
    assert {name for name in tracked.splitlines() if name not in packed} == set()


def files(directory: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in directory.iterdir()}
