"""What the command line of `make gpu` gives to its tests."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "SPARKOPS_GPU"


@dataclass(frozen=True)
class Options:
    """The name of the report, and where a machine without internet finds what it cannot fetch; empty: fetched."""

    name: str = "gpu"
    recipe: str = "gpu-tiny"
    """Name of the recipe of one node in recipes/: its engine is what is built, served and swapped."""
    wheels: str = ""
    """Directory of wheels with all that the image of the recipe asks for."""
    debian: str = ""
    """Tar of a Debian trixie root that holds what nodes, gateway and guard install (CONTRIBUTING.md)."""
    base: str = ""
    """Tar of the image in FROM of the recipe, from `docker save`."""
    reach: str = ""
    """How the GPU reaches containers: runtime, cdi or devices; empty: the first that works."""
    updates: str = "10"
    """Rolling updates in a row of the part `replicas`."""
    logs: str = ".fleet/gpu/logs"
    """Directory for outputs and engine logs, scrubbed."""

    def export(self) -> None:
        """Hand the options to the tests of a child or of this process."""
        os.environ[VARIABLE] = json.dumps(asdict(self))


def given() -> Options:
    """Return the options of `python -m tests.lab.gpu`; the defaults where pytest was started by hand."""
    return Options(**json.loads(os.environ.get(VARIABLE, "{}")))


def tar(path: str) -> Path | None:
    """Return the path of a tar that was given. Raises FileNotFoundError where it does not exist."""
    if path and not Path(path).is_file():
        raise FileNotFoundError(f"{path}: expected a tar file")
    return Path(path) if path else None
