"""The index of carried wheels, asked by a real uv."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import requests

from tests.lab.gpu import wheels

pytestmark = pytest.mark.local


def wheel(directory: Path, name: str, version: str) -> None:
    """Write an empty package."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


def test_uv_installs_a_local_version_of_torch_from_it(tmp_path: Path) -> None:
    wheel(tmp_path, "torch", "2.11.0+cu130")
    wheel(tmp_path, "other_one", "1.0")
    config, target = tmp_path / "uv.toml", tmp_path / "target"
    with wheels.served(tmp_path) as port:
        url = f"http://127.0.0.1:{port}"
        config.write_text(
            '[pip]\nindex-strategy = "unsafe-best-match"\n'
            f'[[index]]\nname = "torch"\nurl = "{url}/torch"\n'
            f'[[index]]\nname = "packages"\nurl = "{url}/simple"\ndefault = true\n'
        )
        argv = (sys.executable, "-m", "uv", "pip", "install", "--no-cache", f"--config-file={config}")
        installed = subprocess.run(
            (*argv, f"--target={target}", "torch==2.11.0+cu130", "other-one"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert installed.returncode == 0, installed.stderr
        assert requests.get(f"{url}/simple/absent/", timeout=10).status_code == 404
    assert {file.name for file in target.glob("*.py")} == {"torch.py", "other_one.py"}


def test_a_directory_without_wheels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no wheel found"), wheels.served(tmp_path):
        pass
