"""Nodes that look like arm64 machines: images, containers and builds are arm64, the kernel emulates their processor.

Docker itself stays x86-64: a Docker Engine under qemu-user could start no container. The node reports aarch64 to
`uname`, and Docker's client there uses linux/arm64 for what it builds, pulls and starts.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from . import bootstrap, images
from .fleet import Fleet
from .node import FleetNode
from .shell import FleetError, docker, run, say

PLATFORM = "linux/arm64"
BINFMT = Path("/proc/sys/fs/binfmt_misc")
HANDLER = ":qemu-aarch64:M::{magic}:{mask}:{emulator}:F"
"""F: the kernel opens the emulator now, so that it needs to exist in no container."""
EMULATOR = Path("/var/tmp/sparkops-fleet-qemu-aarch64")
"""Debian 13's qemu 10.0: with Debian 12's 7.2 the import of torch for CUDA ends with a segmentation fault."""
TAKE_EMULATOR = """
cd "$(mktemp -d)"
apt-get -qq update
apt-get -qq download qemu-user
dpkg -x qemu-user_*.deb .
cp usr/bin/qemu-aarch64 /tmp/qemu-aarch64
"""
MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
KEPT = "sparkops-arm64:{suite}"
"""The name of the base on the node: `Fleet.up` gives the usual one to the base for x86-64."""
DISGUISE = r"""
cat > /usr/local/bin/uname <<'END'
#!/bin/sh
/bin/uname "$@" | sed s/x86_64/aarch64/g
END
chmod 755 /usr/local/bin/uname
echo 'SetEnv DOCKER_DEFAULT_PLATFORM=linux/arm64' > /etc/ssh/sshd_config.d/arm64.conf
kill -HUP "$(cat /run/sshd.pid)"
"""
NATIVE_NFT = r"""
command -v nft >/dev/null || { apt-get -qq update && apt-get -qq install --no-install-recommends nftables; }
directory=$(mktemp -d)
mkdir "$directory/native"
cp $(ldd /usr/sbin/nft | grep -o '/[^ ]*') /usr/sbin/nft "$directory/native"
cat > "$directory/nft" <<'END'
#!/bin/sh
exec /opt/native/ld-linux-x86-64.so.2 --library-path /opt/native /opt/native/nft "$@"
END
chmod 755 "$directory/nft"
cat > "$directory/Dockerfile" <<'END'
FROM sparkops-arm64:trixie
COPY native/ /opt/native/
COPY nft /usr/local/sbin/nft
END
docker build --quiet --platform=linux/arm64 --tag=debian:trixie-slim "$directory"
"""
"""qemu-user has no netlink of the firewall, so the base of the guard has an nft for x86-64 before its own on PATH."""


def up(nodes: int, root: Path) -> Fleet:
    """A fleet whose nodes look like arm64 machines, with Debian for arm64 under the usual names."""
    fleet = Fleet.up(nodes, root=root)
    register(fleet.nodes[0])
    for suite in images.SUITES:
        base = archive(suite) if any(not holds(node, suite) for node in fleet.nodes) else b""
        for node in fleet.nodes:
            give(node, suite, base)
    for node in fleet.nodes:
        node.exec("sh", "-ec", DISGUISE)
        node.exec("sh", "-ec", NATIVE_NFT)
    return fleet


def register(node: FleetNode) -> None:
    """Let the kernel run programs for arm64, with the emulator of the node's Debian. Raises FleetError."""
    if not EMULATOR.exists():
        node.exec("sh", "-ec", TAKE_EMULATOR)
        docker("cp", f"{node.container}:/tmp/qemu-aarch64", str(EMULATOR))
    if not (BINFMT / "register").exists():
        run("mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT))
    if not (BINFMT / "qemu-aarch64").exists():
        (BINFMT / "register").write_text(HANDLER.format(magic=MAGIC, mask=MASK, emulator=EMULATOR))


def holds(node: FleetNode, suite: str) -> bool:
    """Return whether a node has the base already."""
    try:
        node.exec("docker", "image", "inspect", KEPT.format(suite=suite))
    except FleetError:
        return False
    return True


def give(node: FleetNode, suite: str, base: bytes) -> None:
    """Import the base unless the node has it, and name it as recipes do."""
    kept = KEPT.format(suite=suite)
    if not holds(node, suite):
        change = '--change=CMD ["bash"]'
        node.exec("docker", "import", "--platform", PLATFORM, change, "-", kept, stdin=base)
        say(f"{node.name}: {kept} imported")
    node.exec("docker", "tag", kept, f"debian:{suite}-slim")


def archive(suite: str) -> bytes:
    """Return a tar of a minimal Debian for arm64 that trusts the certificates of this machine."""
    buffer = io.BytesIO()
    with bootstrap.debian(suite, "--arch=arm64", "--include=ca-certificates", note=" for arm64") as tree:
        for name, content in images.certificate_files():
            (tree / name).write_bytes(content)
        run("chroot", str(tree), "update-ca-certificates")
        bootstrap.trim(tree)
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            tar.add(tree, ".")
    return buffer.getvalue()
