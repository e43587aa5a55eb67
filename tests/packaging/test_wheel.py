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
from tests.places import ROOT

WHEEL_BYTES = 1_250_000
"""Maximum size of the wheel: a peer is tried if it is there at once."""
SOURCES = ROOT
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
        assert installed.run("recipe", "show", named).stdout.startswith("name: 122b-fp8-tp2\n")

    rendered = installed.run("recipe", "render", "--all", "--output", "Dockerfiles")
    assert rendered.returncode == 0, rendered.stderr
    assert files(installed.directory / "Dockerfiles") == files(SOURCES / "Dockerfiles")

    helped = installed.run("deploy", "--help")
    assert "Example: sparkops deploy" in helped.stdout

    planned = installed.run("plan", "122b-autoround")
    assert planned.returncode == 2
    assert "next: Create one with `sparkops init`" in planned.stderr

    (installed.directory / "inventory.yaml").write_text("nodes: {n1: {address: 127.0.0.1}}\n")
    locked = installed.run("recipe", "lock", "tiny-qwen3-cpu")
    assert locked.returncode == 2
    assert "extends: tiny-qwen3-cpu" in locked.stderr, "it would lie in the installed package"


@pytest.mark.timeout(300)
def test_the_wheel_is_small_and_has_all_files_of_the_sources(installed: Installed) -> None:
    (wheel,) = installed.dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {*archive.namelist()}
        packed = {
            name: json.loads(lzma.decompress(archive.read(f"sparkops/shipped/{name}.json.xz")))
            for name in ("recipes", "programs")
        }
    wanted = tracked("sparkops", "templates", "recipes")
    texts = packed["recipes"] | packed["programs"]

    assert wheel.stat().st_size < WHEEL_BYTES
    archives = {f"sparkops/shipped/{name}.json.xz" for name in packed}
    assert {name for name in names if ".dist-info/" not in name} == (wanted - texts.keys()) | archives
    assert texts == {name: (SOURCES / name).read_text() for name in texts}
    assert texts.keys() <= wanted
    assert {name for name in wanted if name.startswith("recipes/")} == packed["recipes"].keys()

    listed = json.loads(installed.run("recipes", "--json").stdout)["recipes"]
    locked = {Path(name).stem for name in wanted if name.endswith(".lock")}
    assert {recipe["name"] for recipe in listed if recipe["locked"]} == locked


@pytest.mark.timeout(300)
def test_images_get_the_same_files_from_the_wheel_as_from_a_checkout(installed: Installed) -> None:
    """Else guard and gateway would be replaced wherever the next operator has the other kind."""
    code = """
import hashlib, json
from sparkops.config import assets, programs
from sparkops.operator.build.gateway import files
programs_ = [programs.load("checkpoint", "pull"), programs.load_step("add-tensors"), programs.load_survey()]
loaded = [assets.load_templates(), assets.load_mods(), assets.load_package(), assets.load_gate(), files.load_program()]
more = [assets.load_hub_packages(), assets.load_rendezvous(), assets.template_names(), assets.mod_names()]
print(json.dumps([hashlib.sha256(repr(value).encode()).hexdigest() for value in [*loaded, *more, *programs_]]))
"""
    python = installed.venv / "bin/python"
    digests = [
        subprocess.run([interpreter, "-c", code], cwd=directory, check=True, capture_output=True, text=True).stdout
        for interpreter, directory in ((python, installed.directory), (sys.executable, SOURCES))
    ]

    assert digests[0] == digests[1]


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
    assert tracked() - packed == set()


def tracked(*directories: str) -> set[str]:
    """The files of the sources, of these directories or all."""
    argv = ["git", "ls-files", *directories]
    return {*subprocess.run(argv, cwd=SOURCES, check=True, capture_output=True, text=True).stdout.splitlines()}


def files(directory: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in directory.iterdir()}
