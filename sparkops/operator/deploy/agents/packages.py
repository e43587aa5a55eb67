"""Debian's packages in the containers of guard and gateway: their versions, and those that Debian's archive has now."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sparkops.command import Command
from sparkops.node.docker.commands import docker

# apt's own user would need capabilities. Without --error-on=any an archive that does not answer is no error.
SCRIPT = """\
lists=$(mktemp -d) && mkdir "$lists/partial" || exit 1
apt="apt-get -qq -o APT::Sandbox::User=root -o Dir::State::Lists=$lists"
$apt --error-on=any update >/dev/null && $apt --simulate dist-upgrade
"""
UPDATES_S = 120.0
"""Seconds for the lists of Debian's archive, some 10 MB, and their comparison."""
INSTALLED = re.compile(r"([a-z0-9][a-z0-9.+-]{0,100}) ([A-Za-z0-9.+~:-]{1,100})")
UPDATE = re.compile(
    r"Inst (?P<name>[a-z0-9][a-z0-9.+-]{0,100}) \[(?P<old>[^\]\s]{1,100})\] "
    r"\((?P<new>\S{1,100}) (?P<origin>[^)]{1,300})\)"
)
"""A line of `apt-get --simulate` for a package that has a newer version."""


@dataclass(frozen=True)
class AgentPackages:
    """The packages of an agent: version by name, and those that have a newer one."""

    installed: Mapping[str, str]
    updates: tuple[PackageUpdate, ...] = ()


@dataclass(frozen=True)
class PackageUpdate:
    """A package with a newer version in Debian's archive. `security`: whether Debian's security team published it."""

    name: str
    old: str
    new: str
    security: bool

    def __str__(self) -> str:
        return f"{self.name} {self.old} ({self.new})"


def list_installed(container: str) -> Command:
    """List the packages of a running container."""
    show = "--showformat=${Package} ${Version}\\n"
    return Command(("docker", "exec", container, "dpkg-query", "--show", show), timeout_s=30.0)


def list_updates(image: str) -> Command:
    """Read the lists of Debian's archive in a separate container of an image (an ID), and compare its packages."""
    rights = ("--network=host", "--user=0:0", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    return docker("run", "--rm", *rights, "--entrypoint=sh", image, "-c", SCRIPT, timeout_s=UPDATES_S)


def parse_installed(text: str) -> dict[str, str]:
    """Return the version of each package. Ignores other lines."""
    return {match[1]: match[2] for line in text.splitlines() if (match := INSTALLED.fullmatch(line))}


def parse_updates(text: str) -> tuple[PackageUpdate, ...]:
    """Return the packages that have a newer version. Ignores other lines."""
    matches = (UPDATE.match(line) for line in text.splitlines())
    return tuple(
        PackageUpdate(match["name"], match["old"], match["new"], "Debian-Security" in match["origin"])
        for match in matches
        if match
    )


def differing(by_node: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield each package that has not the same version on all nodes, with its versions by node."""
    names = sorted({name for packages in by_node.values() for name in packages})
    for name in names:
        versions = {node: packages.get(name, "none") for node, packages in by_node.items()}
        if len({*versions.values()}) > 1:
            yield f"{name} {', '.join(f'{version} on {node}' for node, version in versions.items())}"
