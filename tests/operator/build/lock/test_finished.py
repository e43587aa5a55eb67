"""What a finished image contains, and what is shown before a newer digest is taken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparkops.config.lock import Finished, Lock, Parent
from sparkops.config.recipe_file import lock_text
from sparkops.operator.build.lock import finished
from sparkops.operator.build.lock.finished import Difference, differences

INSPECT = {"Architecture": "arm64", "Size": 21_474_836_480, "Created": "2026-11-02T10:11:12.123456789Z"}
VERSIONS = {"vllm": "0.33.0", "torch": "2.13.0", "flashinfer": None, "nccl": "2.29.1", "cuda": "13.0"}
OLD, NEW = "sha256:" + "1" * 64, "sha256:" + "2" * 64
KNOWN = Finished(vllm="0.32.0", torch="2.13.0", nccl="2.28.9", cuda="13.0", architecture="arm64", bytes=2**34)


def test_what_an_image_prints_is_read_and_the_rest_is_unknown() -> None:
    read = finished.parse(INSPECT, f"a warning\n{json.dumps(VERSIONS)}\n")

    facts = {"architecture": "arm64", "bytes": 21_474_836_480, "created": "2026-11-02T10:11:12"}
    assert read == Finished(**VERSIONS, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("printed", ["", "sh: python: not found", "[1]", '{"vllm": 5}', '{"vllm": ""}', "null"])
def test_other_output_leaves_versions_unknown(printed: str) -> None:
    assert finished.parse({}, printed) == Finished()


def test_a_newer_digest_is_shown_with_what_it_changes_and_what_is_unknown() -> None:
    new = finished.parse(INSPECT, json.dumps(VERSIONS))
    shown = differences(Parent(name="v:1", digest=OLD, finished=KNOWN), Parent(name="v:1", digest=NEW, finished=new))

    assert [str(difference) for difference in shown] == [
        f"digest: {OLD} -> {NEW}",
        "vLLM: 0.32.0 -> 0.33.0",
        "torch: 2.13.0, unchanged",
        "FlashInfer: unknown -> unknown",
        "NCCL: 2.28.9 -> 2.29.1",
        "CUDA: 13.0, unchanged",
        "architecture: arm64, unchanged",
        "size: 16.00 GiB -> 20.00 GiB",
        "created: unknown -> 2026-11-02T10:11:12",
    ]
    assert [difference.same for difference in shown][:4] == [False, False, True, None]


def test_an_image_that_the_lock_does_not_describe_is_unknown_not_changed() -> None:
    shown = differences(Parent(name="v:1", digest=OLD), Parent(name="v:1", digest=NEW, finished=KNOWN))

    assert str(shown[1]) == "vLLM: unknown -> 0.32.0"
    assert [difference.same for difference in shown[1:]] == [None] * len(finished.ROWS)
    assert Difference("x", None, None).same is None


def test_only_the_lock_of_a_finished_image_describes_it() -> None:
    lock = Lock(made_for="0" * 64, machine="aarch64", parent=Parent(name="v:1", digest=OLD), whole=False)

    assert "finished" not in lock_text("q", lock)
    described = lock.model_copy(update={"parent": Parent(name="v:1", digest=OLD, finished=KNOWN)})
    assert "vllm: 0.32.0" in lock_text("q", described)


def test_versions_are_read_without_an_import(tmp_path: Path) -> None:
    """A torch whose import would fail, and packages that are only metadata."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "torch/version.py").write_text("__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n")
    for name, version in {"vllm": "0.33.0", "torch": "2.13.0+cu130", "nvidia_nccl_cu13": "2.29.1"}.items():
        place = tmp_path / f"{name}-{version}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    path = tmp_path / "bin"
    path.mkdir()
    (path / "python3").symlink_to(sys.executable)
    env = {"PATH": f"{path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path), "CUDA_VERSION": "12.9"}
    command = finished.read_versions("sha256:1")

    ran = subprocess.run(["sh", "-c", command.argv[-1]], input=command.stdin, env=env, capture_output=True, check=True)

    read = finished.parse({}, ran.stdout.decode())
    assert (read.vllm, read.torch, read.nccl, read.cuda) == ("0.33.0", "2.13.0+cu130", "2.29.1", "13.0")
    assert read.flashinfer is None


def test_a_foreign_image_gets_no_network_and_no_rights() -> None:
    argv = finished.read_versions("sha256:1").argv

    assert {"--network=none", "--cap-drop=ALL", "--rm", "--memory=16g"} <= {*argv}
    assert argv[-4:-1] == ("--entrypoint=sh", "sha256:1", "-c")
