"""Print what packages ask of torch: `python -m tests.lint.torch_metadata [NAME...]`, without NAME those of REQUIRES.

pip reads the metadata of the newest wheel for Python 3.12 on aarch64 from the package index of this machine. What it
prints is a line of REQUIRES.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile

from sparkops.lint.torch_needs import REQUIRES

PLATFORMS = ["manylinux2014_aarch64", *(f"manylinux_2_{n}_aarch64" for n in (17, 24, 26, 27, 28, 31, 34, 35, 38, 39))]
"""Those that a wheel for Ubuntu 24.04 may name."""
PIP = ("-m", "pip", "install", "--dry-run", "--quiet", "--no-deps", "--ignore-installed", "--report", "-")
WHEEL = ("--only-binary=:all:", "--python-version", "3.12", *(f"--platform={one}" for one in PLATFORMS))
TORCH = re.compile(r"torch(?![\w-])\s*\(?([^;)]*?)\)?\s*(?:;(?!.*extra ==).*)?")


def line(name: str) -> str:
    """Return the line of a package, or that it has no such wheel."""
    with tempfile.TemporaryDirectory() as target:
        argv = [sys.executable, *PIP, *WHEEL, "--target", target, name]
        ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    if ran.returncode:
        return f"{name}: no wheel for Python 3.12 on aarch64; read the metadata of its newest release"
    metadata = json.loads(ran.stdout)["install"][0]["metadata"]
    needed = [match for match in map(TORCH.fullmatch, metadata.get("requires_dist", ())) if match]
    return " ".join([name, metadata["version"], *(f"torch{match[1]}" for match in needed[:1])])


if __name__ == "__main__":
    for name in sys.argv[1:] or [row.split()[0] for row in REQUIRES.strip().splitlines()]:
        print(line(name), flush=True)
