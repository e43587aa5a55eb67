"""The program that drops clean pages, run over real files of this machine; fincore (util-linux) says what is cached."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sparkops.config.node import NodeConfig
from sparkops.node.local import LocalNode
from sparkops.serving.memory import pages
from tests.examples import recipe

pytestmark = pytest.mark.local  # real programs read real files

SIZE = 8 * 2**20


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "q" / "sub").mkdir(parents=True)
    if subprocess.run(["stat", "-fc%T", str(tmp_path)], capture_output=True, text=True, check=True).stdout == "tmpfs\n":
        pytest.skip("pages of a tmpfs are its files; they cannot be dropped")
    return tmp_path


def cached(file: Path) -> int:
    """Bytes of a file in the page cache."""
    ran = subprocess.run(["fincore", "--bytes", "--noheadings", "--output=RES", file], capture_output=True, check=True)
    return int(ran.stdout)


def put(file: Path) -> Path:
    """A file on the disk that is whole in the page cache."""
    with file.open("wb") as target:
        target.write(os.urandom(SIZE))
        target.flush()
        os.fsync(target.fileno())
    file.read_bytes()
    assert cached(file) == SIZE
    return file


def drop(models: Path) -> str:
    command = pages.drop(recipe(), NodeConfig(address="n1", model_dir=str(models)))
    return LocalNode("here").run(command).stdout


def test_clean_pages_of_the_model_go_and_those_of_its_neighbours_stay(models: Path) -> None:
    shard, deep, other = put(models / "q/a.safetensors"), put(models / "q/sub/b.safetensors"), put(models / "other")
    (models / "q/link").symlink_to(models / "other")
    os.mkfifo(models / "q/pipe")

    output = drop(models)

    assert (cached(shard), cached(deep), cached(other)) == (0, 0, SIZE)
    assert output == (
        f"page cache dropped: 2 files, 0.0 GiB in {models}/q; {models}/other: it is outside of the directory\n"
    )
    assert shard.stat().st_size == SIZE


def test_what_cannot_be_dropped_is_told_and_is_no_failure(models: Path) -> None:
    for number in range(5):
        (models / f"q/{number}").symlink_to("/nowhere")

    output = drop(models)

    assert output.startswith(f"page cache dropped: 0 files, 0.0 GiB in {models}/q; /nowhere: ")
    assert output.endswith("; 2 more kept\n")
    absent = LocalNode("here").run(pages.drop(recipe(), NodeConfig(address="n1", model_dir="/absent")))
    assert absent.stdout == "page cache dropped: 0 files, 0.0 GiB in /absent/q; /absent/q: No such file or directory\n"


def test_the_guard_drops_them_in_a_container_that_sees_what_the_engine_s_does() -> None:
    argv = pages.drop_through("q-blue-r0", "sha256:abc", recipe()).argv

    options = ("--rm", "--network=none", "--volumes-from=q-blue-r0:ro", "--entrypoint=python3")
    assert argv == ("docker", "run", *options, "sha256:abc", "-c", pages.PROGRAM, "/models/q")
