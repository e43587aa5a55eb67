"""`make` without a network, where every package is installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.packaging.installed import ROOT, lacking

pytestmark = pytest.mark.local
OFFLINE = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}


def test_make_calls_no_pip_where_all_is_installed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"

    outer = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of `make test`
    command = ("make", f"READY={ready}", str(ready))
    made = subprocess.run(command, cwd=ROOT, env=outer | OFFLINE, capture_output=True, text=True, check=False)

    assert (made.returncode, made.stderr, ready.exists()) == (0, "", True)


def test_a_package_that_is_missing_or_too_old_is_named(tmp_path: Path) -> None:
    lines = ['dependencies = ["pytest>=1", "pytest>=999", "sparkops-none"]', "optional-dependencies.dev = []"]
    (tmp_path / "pyproject.toml").write_text("\n".join(["[project]", 'name = "sparkops"', *lines]))

    assert [*lacking(tmp_path)] == ["pytest>=999", "sparkops-none", f"sparkops of {tmp_path}"]
