"""Debian's base images without a registry: debootstrap, trimmed like the official slim images."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .engine import require
from .shell import FleetError, client, pipe, run, step

PACKAGES = {
    "debootstrap": "debootstrap",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}
# Official images set the same: nobody reads manuals in a container, and fsync
# buys nothing for a layer that is thrown away when the build dies.
SETTINGS = {
    "etc/dpkg/dpkg.cfg.d/docker": "force-unsafe-io\n"
    "path-exclude /usr/share/doc/*\n"
    "path-include /usr/share/doc/*/copyright\n"
    "path-exclude /usr/share/man/*\n"
    "path-exclude /usr/share/locale/*\n",
    "etc/apt/apt.conf.d/docker": 'Acquire::Languages "none";\n'
    'Acquire::GzipIndexes "true";\n'
    'APT::AutoRemove::SuggestsImportant "false";\n',
}
WASTE = (
    "var/lib/apt/lists",
    "var/cache/apt",
    "var/log",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/doc",
)


def image(suite: str) -> str:
    """The id of a new image that holds a minimal Debian."""
    with debian(suite) as tree:
        trim(tree)
        return pipe(
            ("tar", "-C", str(tree), "--one-file-system", "-c", "."),
            (client(), "import", "--change", 'CMD ["bash"]', "-"),
        )


@contextmanager
def debian(suite: str, *options: str, note: str = "") -> Iterator[Path]:
    """A minimal Debian in a directory, removed afterwards. `options` are debootstrap's. Raises FleetError."""
    require(PACKAGES)
    if os.geteuid() != 0:
        raise FleetError(
            f"no registry answers, and only root can make debian:{suite}-slim with debootstrap: "
            "run this as root, or load that image into Docker yourself"
        )
    tree = Path(tempfile.mkdtemp(prefix=f"fleet-{suite}-", dir="/var/tmp"))
    try:
        with step(f"debian:{suite}-slim{note}: made with debootstrap"):
            tree.chmod(0o755)
            argv = ("debootstrap", "--variant=minbase", *options, suite, str(tree), *mirror())
            run(*argv, env={"DPKG_FORCE": "unsafe-io"})
        yield tree
    finally:
        # debootstrap mounts /proc and /sys inside; never walk into them if it was interrupted
        run("rm", "-rf", "--one-file-system", str(tree))


def mirror() -> tuple[str, ...]:
    """The mirror that the environment names, as debootstrap's argument; empty: its own default."""
    named = os.environ.get("FLEET_DEBIAN_MIRROR")
    return (named,) if named else ()


def trim(tree: Path) -> None:
    for path in WASTE:
        run("find", str(tree / path), "-type", "f", "!", "-name", "copyright", "-delete")
    for name, text in SETTINGS.items():
        (tree / name).write_text(text)
