"""`make release`: build, check and tag the version of sparkops/__init__.py. With `--tag` it is tagged already.

Both packages are built, checked by twine, and pass tests/packaging; the wheel is installed in an environment of its
own, and its `sparkops demo` loses no request on this machine's Docker. dist/ then has the packages, the hashes of what
they require, and NOTES.md, the section of CHANGELOG.md. `.github/workflows/release.yml` does the same for a tag that
was pushed, and publishes dist/.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

import sparkops
from sparkops.operator.build.render import debian
from tests.places import ROOT

SOURCES = ROOT
DIST = SOURCES / "dist"
REQUIREMENTS, TOOLS = SOURCES / "requirements.txt", SOURCES / "tests/packaging/tools.txt"
"""Packages with their hashes: of the operator's program, and of the tools that package it (`make requirements`)."""
HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<day>\d{4}-\d\d-\d\d))?$", re.MULTILINE)
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install")


def main() -> int:
    """Return 1 where the version cannot be released, with what to do first."""
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.release", description=__doc__)
    parser.add_argument("--tag", default="", help="the tag that exists for this version")
    tag = parser.parse_args().tag
    version, changelog = sparkops.__version__, (SOURCES / "CHANGELOG.md").read_text()
    tags = output("git", "tag", "--list").split()
    problems = [*refusals(version, changelog, tags, tag), *outdated(debian.DAY, changelog)]
    problems += unclean(output("git", "status", "--porcelain"))
    for problem in problems:
        print(f"release: {problem}", file=sys.stderr)
    if problems:
        return 1
    try:
        release(version, changelog, tagged=bool(tag))
    except subprocess.CalledProcessError as failed:
        print(f"release: not tagged: {' '.join(failed.cmd)} ended with {failed.returncode}", file=sys.stderr)
        return 1
    return 0


def release(version: str, changelog: str, *, tagged: bool) -> None:
    """Build and check, then tag. Raises CalledProcessError for what failed."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="sparkops-release-") as scratch:
        build(Path(scratch) / "tools")
        run(sys.executable, "-m", "pytest", "-m", "local or unit", "tests/packaging")
        try_wheel(Path(scratch) / "owner")
    shutil.copyfile(REQUIREMENTS, DIST / f"sparkops-{version}-requirements.txt")
    (DIST / "NOTES.md").write_text(notes(version, changelog))
    if not tagged:
        run("git", "tag", "--annotate", f"v{version}", "--message", f"sparkops {version}")
        print(f"release: tagged v{version}; next: git push origin v{version}")


def refusals(version: str, changelog: str, tags: Collection[str], tag: str = "") -> Iterator[str]:
    """Yield why a version cannot be released, by the text of CHANGELOG.md and the tags. `tag`: the one it has."""
    newest, *_ = [*HEADING.finditer(changelog), None]
    if newest is None or newest["version"] != version:
        found = newest["version"] if newest else "none"
        yield f"CHANGELOG.md: the newest section is {found}, expected [{version}] with its day, as sparkops/__init__.py"
    elif newest["day"] is None:
        yield f"CHANGELOG.md: [{version}]: expected its day, as in `## [{version}] - 2026-01-31`"
    if tag and tag != f"v{version}":
        yield f"tag {tag}: expected v{version}, as sparkops/__init__.py"
    if not tag and f"v{version}" in tags:
        yield f"tag v{version} exists: raise __version__ in sparkops/__init__.py"


def outdated(day: str, changelog: str) -> Iterator[str]:
    """Yield why agents would get Debian's packages of an earlier day than that of the release."""
    newest = HEADING.search(changelog)
    released = newest["day"] if newest else None
    if released and day != released:
        place = "sparkops/operator/build/render/debian.py"
        yield f"DAY of {place} is {day}, expected {released}; then sparkops recipe render --all"


def unclean(status: str) -> Iterator[str]:
    if status.strip():
        yield f"changes that are not committed: {', '.join(line[3:] for line in status.splitlines())}"


def notes(version: str, changelog: str) -> str:
    """Return the section of a version in CHANGELOG.md, without its heading."""
    _, _, rest = changelog.partition(f"## [{version}]")
    following = HEADING.search(rest)
    body = rest[: following.start()] if following else rest
    return body.partition("\n")[2].strip() + "\n"


def build(tools: Path) -> None:
    """Build wheel and source package into dist/, and let twine check them."""
    run(sys.executable, "-m", "venv", str(tools))
    python = str(tools / "bin/python")
    run(python, *PIP, "--require-hashes", "--requirement", str(TOOLS))
    run(python, "-m", "hatchling", "build", "--directory", str(DIST))
    run(python, "-m", "twine", "check", "--strict", *map(str, sorted(DIST.iterdir())))


def try_wheel(owner: Path) -> None:
    """Install the wheel as its owner would, and let it replace a release under load: exit code 1 for a lost request."""
    (wheel,) = DIST.glob("*.whl")
    run(sys.executable, "-m", "venv", str(owner))
    run(str(owner / "bin/python"), *PIP, "--require-hashes", "--requirement", str(REQUIREMENTS))
    run(str(owner / "bin/python"), *PIP, "--no-deps", str(wheel))
    program = str(owner / "bin/sparkops")
    run(program, "--version")
    run(program, "demo", "--yes")


def run(*argv: str) -> None:
    subprocess.run(argv, cwd=SOURCES, check=True)


def output(*argv: str) -> str:
    return subprocess.run(argv, cwd=SOURCES, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
