"""Debian's packages in the images of gateway, guard and downloads: of a day that is part of their inputs.

The bases are pinned by digest, so their packages are those of the day when the base was made, and BuildKit keeps the
layer of an installation for ever: another day makes a node fetch all of them anew, with Debian's security updates.
"""

from __future__ import annotations

import re

DAY = "2026-11-28"
"""The day of this version of sparkops. `build.agent_packages` of the inventory names a later one."""
FROM = re.compile(r"^FROM .+\n", re.MULTILINE)


def upgraded(dockerfile: str, day: str | None = None) -> str:
    """Return a Dockerfile whose base is upgraded first, and whose packages are installed anew for another day."""
    upgrade = (
        "# Debian's packages of this day (build.agent_packages): another one installs all of them anew.\n"
        f"RUN : {day or DAY} \\\n"
        "    && apt-get update \\\n"
        "    && DEBIAN_FRONTEND=noninteractive apt-get -y upgrade \\\n"
        "    && rm -rf /var/lib/apt/lists/*\n"
    )
    return FROM.sub(lambda base: base[0] + upgrade, dockerfile, count=1)
