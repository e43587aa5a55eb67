"""What must be true before a version is released, and what its notes say."""

from __future__ import annotations

import pytest

from tests.packaging.release import notes, outdated, refusals, unclean

CHANGELOG = """\
# Changelog

## [0.3.0] - 2026-12-01

- New.

## [0.2.0] - 2026-11-22

- Old.
"""
OPEN = CHANGELOG.replace("[0.3.0] - 2026-12-01", "[Unreleased]")


def test_a_version_whose_section_is_the_newest_is_released_with_it() -> None:
    assert [*refusals("0.3.0", CHANGELOG, ["v0.2.0"])] == []
    assert [*refusals("0.3.0", CHANGELOG, ["v0.3.0"], tag="v0.3.0")] == []
    assert [*unclean("")] == []
    assert notes("0.3.0", CHANGELOG) == "- New.\n"
    assert notes("0.2.0", CHANGELOG) == "- Old.\n"


@pytest.mark.parametrize(
    ("version", "changelog", "tags", "why"),
    [
        ("0.3.0", OPEN, [], "the newest section is Unreleased, expected [0.3.0] with its day"),
        ("0.2.0", CHANGELOG, [], "the newest section is 0.3.0, expected [0.2.0]"),
        ("0.3.0", CHANGELOG.replace(" - 2026-12-01", ""), [], "[0.3.0]: expected its day"),
        ("0.3.0", "", [], "the newest section is none"),
        ("0.3.0", CHANGELOG, ["v0.3.0"], "tag v0.3.0 exists: raise __version__"),
    ],
)
def test_what_keeps_a_version_from_its_release_is_named(
    version: str, changelog: str, tags: list[str], why: str
) -> None:
    (problem,) = refusals(version, changelog, tags)

    assert why in problem


def test_a_tag_of_another_version_is_refused() -> None:
    assert [*refusals("0.3.0", CHANGELOG, ["v0.4.0"], tag="v0.4.0")] == [
        "tag v0.4.0: expected v0.3.0, as sparkops/__init__.py"
    ]


def test_changes_that_no_commit_has_are_named() -> None:
    assert [*unclean(" M README.md\n?? a.py\n")] == ["changes that are not committed: README.md, a.py"]


def test_a_release_has_debian_s_packages_of_its_day() -> None:
    assert [*outdated("2026-12-01", CHANGELOG)] == []
    [problem] = outdated("2026-11-22", CHANGELOG)
    assert problem.startswith("DAY of sparkops/operator/build/render/debian.py is 2026-11-22, expected 2026-12-01;")
