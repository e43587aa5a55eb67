"""The images of the fleet: what a node is, and the bases that recipes build on.

Each is tagged by the digest of everything that defines it, so it is made once.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sparkops.operator.build.guard.image import PACKAGES

from . import bootstrap
from .shell import FleetError, client, docker, say, step, succeeds

HOST_CERTIFICATES = Path("/usr/local/share/ca-certificates")
NODE_SCRIPT = Path(__file__).parent / "node.sh"
NODE_PROGRAM = "/usr/local/sbin/fleet-node"
LAZY_APT = Path(__file__).with_name("apt-get.sh")
LAZY_APT_SOURCE = "usr/local/share/fleet/apt-get"
NODE_PACKAGES = (
    "ca-certificates docker.io docker-cli docker-buildx iptables openssh-server iproute2 iputils-ping procps python3"
    " zstd rsync"
)
SUITES = ("bookworm", "trixie")
BUILT_ON = {"bookworm": "haproxy python3", "trixie": " ".join((*PACKAGES, "python3-venv"))}
"""What the images of stand-in, gateway, guard and hub install on each base."""
PROBE_S = 10
PULL_S = 600
# What two images are made from is fetched once: a lock for each suite.
SOURCE_OF: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

INSTALL = """
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --no-install-recommends {packages}
update-ca-certificates
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /tmp/install.sh
find /var/log -type f -delete
"""
# The server's package makes host keys, which every node would share. A password of `*`
# means "no password"; the usual `!` means "locked", and sshd then refuses keys too.
NODE_SETUP = f"""
rm -f /etc/ssh/ssh_host_*
useradd --uid 1000 --create-home --shell /bin/bash --groups docker --password '*' ops
install -d -o ops -g ops /srv/models
chmod 755 {NODE_PROGRAM}
cat >/etc/ssh/sshd_config.d/fleet.conf <<END
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
END
"""


@dataclass(frozen=True)
class Image:
    """A Debian base with files and a script on top; no script: the base as it is."""

    suite: str
    kind: str
    script: str
    files: tuple[tuple[str, bytes], ...]
    changes: tuple[str, ...] = ('CMD ["bash"]',)

    @property
    def base(self) -> str:
        return f"debian:{self.suite}-slim"

    @cached_property
    def tag(self) -> str:
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        return f"sparkops-fleet:{self.kind}-{self.suite}-{digest}"

    @cached_property
    def layers(self) -> str:
        """What it holds: unlike its id, the same in every engine and image store."""
        return docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", self.tag)

    def ensure(self) -> None:
        if exists(self.tag):
            return
        source = self.source()
        if not self.script:
            docker("tag", source, self.tag)
            return
        with step(f"{self.tag}: made from {self.base}"):
            self.make(source)

    def source(self) -> str:
        """Debian as the host has it, or a registry, or debootstrap: the first that can."""
        homemade = f"sparkops-fleet:debian-{self.suite}"
        with SOURCE_OF[self.suite]:
            for tag in (self.base, homemade):
                if exists(tag):
                    return tag
            if pull(self.base):
                return self.base
            docker("tag", bootstrap.image(self.suite), homemade)
            return homemade

    def make(self, source: str) -> None:
        box = docker("create", "--network=host", source, "sh", "-e", "/tmp/install.sh")
        try:
            docker(
                "cp",
                "-",
                f"{box}:/",
                stdin=archive((("tmp/install.sh", self.script.encode()), *self.files)),
            )
            docker("start", "--attach", box)
            options = (f"--change={change}" for change in self.changes)
            docker("commit", *options, box, self.tag)
        finally:
            docker("rm", "--force", box)


def node() -> Image:
    return Image(
        suite="trixie",
        kind="node",
        script=INSTALL.format(packages=NODE_PACKAGES) + NODE_SETUP,
        files=((NODE_PROGRAM[1:], NODE_SCRIPT.read_bytes()), *certificate_files()),
        changes=(f'ENTRYPOINT ["{NODE_PROGRAM}", "boot"]', "CMD []"),
    )


def recipe_bases(suites: tuple[str, ...] = SUITES, *, prepared: bool = False) -> tuple[Image, ...]:
    """What the shipped recipes and the guard build FROM, with the certificates that this machine trusts.

    `prepared`: with what the agents' images install, which every node would install again, and an apt-get that sees it.
    """
    files = certificate_files()
    if prepared:
        lazy = f"install -m 755 /{LAZY_APT_SOURCE} /usr/local/sbin/apt-get\n"
        scripts = {suite: INSTALL.format(packages=f"ca-certificates {BUILT_ON[suite]}") + lazy for suite in suites}
        files = (*files, (LAZY_APT_SOURCE, LAZY_APT.read_bytes()))
        return tuple(Image(suite=suite, kind="prepared", script=scripts[suite], files=files) for suite in suites)
    script = INSTALL.format(packages="ca-certificates") if files else ""
    return tuple(Image(suite=suite, kind="base", script=script, files=files) for suite in suites)


def certificates() -> tuple[Path, ...]:
    return tuple(sorted(HOST_CERTIFICATES.glob("*.crt")))


def certificate_files() -> tuple[tuple[str, bytes], ...]:
    return tuple((str(path)[1:], path.read_bytes()) for path in certificates())


def name_on_host(image: Image) -> None:
    """Builds on the host itself find the base too; an image that was there stays what it was."""
    if not exists(image.base):
        docker("tag", image.tag, image.base)


def exists(tag: str) -> bool:
    return succeeds(client(), "image", "inspect", tag)


def pull(tag: str) -> bool:
    """Asking costs seconds where a registry is out of reach, so ask shortly before pulling."""
    try:
        docker("manifest", "inspect", tag, timeout=PROBE_S)
        with step(f"{tag}: pulled"):
            docker("pull", "--quiet", tag, timeout=PULL_S)
    except FleetError as error:
        say(f"{tag}: no registry gives it ({str(error).rpartition(': ')[2]}), so it is made here")
        return False
    return True


def archive(files: tuple[tuple[str, bytes], ...]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
