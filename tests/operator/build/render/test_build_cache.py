"""The cache of builds with a real uv: code of one image's packages changes what uv installs from the same cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.examples import recipe

pytestmark = pytest.mark.local

CHANGE = (
    "import os, glob; [open(file, 'a').write('CHANGED = True\\n') for file in "
    "glob.glob(os.environ['UV_CACHE_DIR'] + '/archive-v0/*/victim.py')]\n"
)
"""A .pth file: Python executes a line that begins with `import` at each start, as when uv compiles bytecode."""
OURS = recipe(image={"packages": ["victim==1.0"]})
THEIRS = recipe(name="foreign", image={"packages": ["innocent==1.0", "victim==1.0"]})


def wheel(directory: Path, name: str, files: dict[str, str]) -> None:
    info = f"{name}-1.0.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(directory / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)


def install(tmp_path: Path, cache: str, requirements: Path) -> Path:
    """Install by hash into a new environment, from a cache of that name; return the environment."""
    uv, target = (sys.executable, "-m", "uv"), tmp_path / f"venv-{len(list(tmp_path.glob('venv-*')))}"
    env = {**os.environ, "UV_CACHE_DIR": str(tmp_path / cache), "UV_LINK_MODE": "copy", "UV_COMPILE_BYTECODE": "1"}
    subprocess.run((*uv, "venv", "--quiet", f"--python={sys.executable}", str(target)), env=env, check=True)
    offline = ("--no-index", f"--find-links={tmp_path / 'wheels'}", f"--python={target}/bin/python")
    subprocess.run(
        (*uv, "pip", "install", "--quiet", *offline, "--require-hashes", f"--requirement={requirements}"),
        env=env,
        check=True,
    )
    return target


def installed(environment: Path) -> str:
    return next(environment.glob("lib/*/site-packages/victim.py")).read_text()


def test_code_of_a_package_changes_no_image_of_another_recipe(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    wheel(tmp_path / "wheels", "victim", {"victim.py": "OURS = True\n"})
    wheel(tmp_path / "wheels", "innocent", {"innocent.pth": CHANGE})
    lines = {}
    for name in ("victim", "innocent"):
        digest = hashlib.sha256((tmp_path / f"wheels/{name}-1.0-py3-none-any.whl").read_bytes()).hexdigest()
        lines[name] = f"{name}==1.0 --hash=sha256:{digest}\n"
    ours, theirs = tmp_path / "ours.txt", tmp_path / "theirs.txt"
    ours.write_text(lines["victim"])
    theirs.write_text("".join(lines.values()))
    install(tmp_path, OURS.build_cache, ours)

    install(tmp_path, THEIRS.build_cache, theirs)

    assert "CHANGED" in installed(install(tmp_path, THEIRS.build_cache, ours))
    assert installed(install(tmp_path, OURS.build_cache, ours)) == "OURS = True\n"
