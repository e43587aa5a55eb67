"""requirements.txt and tools.txt: packages by hash, complete and within the bounds of pyproject.toml.

`make requirements` writes them anew.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.release import REQUIREMENTS, SOURCES, TOOLS

LINE = re.compile(
    r"(?P<name>[a-z0-9.-]+)==(?P<version>[^ ]+)(?P<marker> ; [^\\]+)?(?P<hashes>( --hash=sha256:[0-9a-f]{64})+)"
)
DECLARED = tomllib.loads((SOURCES / "pyproject.toml").read_text())["project"]["dependencies"]
WORKFLOWS = [*(SOURCES / ".github/workflows").glob("*.yml")]


def locked(file: Path) -> dict[str, str]:
    """The version of each package. Every line has hashes, and none a URL."""
    lines = [line for line in file.read_text().replace(" \\\n   ", "").splitlines() if not line.startswith("#")]
    matches = [LINE.fullmatch(line) for line in lines]
    assert all(matches), [line for line, match in zip(lines, matches, strict=True) if not match]
    return {match["name"]: match["version"] for match in matches if match}


def test_each_package_that_the_program_declares_is_locked_within_its_bounds() -> None:
    versions = locked(REQUIREMENTS)

    for declared in map(Requirement, DECLARED):
        assert versions[canonicalize_name(declared.name)] in declared.specifier, declared


def test_what_these_packages_require_is_locked_too() -> None:
    """By the packages of this environment, without their extras."""
    versions, open_names = locked(REQUIREMENTS), [Requirement(declared).name for declared in DECLARED]
    known = set[str]()
    while open_names:
        name = canonicalize_name(open_names.pop())
        if name not in known:
            known.add(name)
            required = map(Requirement, requires(name) or ())
            open_names += [one.name for one in required if not one.marker or one.marker.evaluate({"extra": ""})]

    assert known <= {*versions}


def test_the_tools_that_package_it_are_locked() -> None:
    assert {"hatchling", "twine"} < {*locked(TOOLS)}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_actions_are_pinned_by_their_commit(workflow: Path) -> None:
    """A tag can move, and the release may write to the repository."""
    used = [line.partition("uses:")[2].strip() for line in workflow.read_text().splitlines() if "uses:" in line]

    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v[0-9.]+", action) for action in used), used
