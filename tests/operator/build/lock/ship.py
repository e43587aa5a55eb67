"""Write the shipped locks: `python -m tests.operator.build.lock.ship [RECIPE...]`, without a node, for arm64.

uv resolves packages as on a Spark, from the local package index, up to some weeks after the release of the recipe's
vLLM, because an old vLLM does not support newer web frameworks. The digest of the base is not read.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from sparkops.config import assets, recipe_file, shipped
from sparkops.config import lock as locks
from sparkops.config.lock import Lock, Parent
from sparkops.config.recipe import Recipe
from sparkops.operator.build.lock import resolving
from sparkops.operator.build.render.context import hashes, recipe_mods

MACHINE = "aarch64"
UBUNTU = "nvidia/cuda:13.0.2-devel-ubuntu24.04"
PYTHON = {UBUNTU: ("3.12", "aarch64-manylinux_2_39")}
"""Version of Python and uv's name of the platform, by base: Ubuntu 24.04 has Python 3.12 and glibc 2.39."""
UNTIL = {
    "0.23.0": "2026-06-30",
    "0.27.1": "2026-08-31",
    "0.28.0": "2026-09-15",
    "0.30.0": "2026-10-10",
    "0.32.0": "2026-11-05",
}
"""The last day of packages, by the version of vLLM; what a recipe pins itself may be of any day up to TODAY."""
TODAY = "2026-11-22"
NEWER = {"ray": ("aiohttp", "yarl")}
"""Packages that one which a recipe pins needs newer than the days of its vLLM: Ray 2.60.0 is of November 2026."""
TEMPLATES, MODS = assets.load_templates(), assets.load_mods()


@lru_cache
def resolve(base: str, until: str, override: tuple[str, ...], requirements: tuple[str, ...]) -> dict[str, list[str]]:
    """Return each package as name==version with the hashes of its files. Raises CalledProcessError."""
    python, platform = PYTHON[base]
    pinned = [re.split(r"[=\[]", one)[0] for one in requirements]
    newest = [*pinned, *(name for package in pinned for name in NEWER.get(package, ()))]
    newer = [option for name in newest for option in ("--exclude-newer-package", f"{name}={TODAY}")]
    with tempfile.TemporaryDirectory() as directory:
        over, want, answer = Path(directory, "over.txt"), Path(directory, "want.txt"), Path(directory, "pylock.toml")
        over.write_text("\n".join(override) + "\n")
        want.write_text("\n".join(requirements) + "\n")
        settings = ["--python-version", python, "--python-platform", platform, "--exclude-newer", until, *newer]
        shape = ["--format", "pylock.toml", "--no-annotate", "--quiet"]
        argv = [
            "uv",
            "pip",
            "compile",
            "--no-config",
            *shape,
            *settings,
            "--override",
            str(over),
            "-o",
            str(answer),
            str(want),
        ]
        subprocess.run(argv, check=True)
        packages = tomllib.loads(answer.read_text())["packages"]
    return dict(sorted((f"{package['name']}=={package['version']}", digests(package)) for package in packages))


def digests(package: dict[str, Any]) -> list[str]:
    """Return the hashes of a package's wheels for the platform, or of its source where it has no wheel."""
    files = package.get("wheels") or [package["sdist"]]
    return sorted(f"sha256:{file['hashes']['sha256']}" for file in files)


def make(loaded: Recipe) -> Lock:
    """Return the lock of a recipe, with no digest of a base that the recipe does not pin."""
    image, packages = loaded.image, dict[str, list[str]]()
    if image.torch and image.vllm:
        removed = [f'{name}; python_version < "3"' for name in image.remove]
        override = (image.torch.pin, *image.override, *removed)
        until = UNTIL[image.vllm.partition("==")[2]]
        packages = resolve(image.parent, until, override, (image.torch.pin, *resolving.requirements(loaded)))
    return Lock(
        made_for=locks.fingerprint(image),
        machine=MACHINE,
        parent=Parent(name=image.parent),
        whole=resolving.hashes_all(loaded),
        packages=packages,
        mods=hashes(recipe_mods(loaded, MODS)),
        models={weights.id: weights.revision for weights in loaded.model.fetched if weights.revision},
    )


def main(named: list[str]) -> None:
    for file in shipped.recipes().values():
        loaded = recipe_file.load_unlocked(file)
        if loaded.unlocked is None and (not named or file.stem in named):
            recipe_file.lock_file(file).write_text(recipe_file.lock_text(loaded.name, make(loaded)))
            print(file.stem, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
