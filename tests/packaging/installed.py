"""Check that an environment has every package of pyproject.toml, so that `make` needs no network. Standard library and
`packaging` only: it runs before anything is known to be installed.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def lacking(project: Path) -> Iterator[str]:
    """Yield each requirement of a project, with those of its development, that this environment does not meet."""
    from packaging.requirements import Requirement  # noqa: PLC0415 - pytest brings it

    stated = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    for text in (*stated["dependencies"], *stated["optional-dependencies"]["dev"]):
        requirement = Requirement(text)
        try:
            met = metadata.version(requirement.name) in requirement.specifier
        except metadata.PackageNotFoundError:
            met = False
        if not met:
            yield text
    distribution = next(iter(metadata.distributions(name=stated["name"])), None)
    origin = distribution.read_text("direct_url.json") if distribution else None
    if json.loads(origin or "{}").get("url") != project.as_uri():
        yield f"{stated['name']} of {project}"


if __name__ == "__main__":
    try:
        missing = list(lacking(ROOT))
    except ImportError as error:
        missing = [str(error.name)]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}")
