"""The guard's image: Debian's Python with the libraries that sparkops imports, and this copy of sparkops."""

from __future__ import annotations

from collections.abc import Mapping

from sparkops.render.context import Content, Context, directories, pack
from sparkops.render.sandbox import fill

DISK_GIB = 1.0
"""Free space in GiB that a node needs before the image is built."""
DEBIAN = "debian:trixie-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f"
"""The image for all architectures."""
PACKAGES = (
    "docker-cli",
    "nftables",
    "python3",
    "python3-docker",
    "python3-paramiko",
    "python3-prometheus-client",
    "python3-pydantic",
    "python3-requests",
    "python3-tenacity",
    "python3-yaml",
    "tini",
)
NOT_SENT = ("cli/", "__main__.py")
"""Modules that the guard cannot import, so their changes need no new guard."""


def guard_dockerfile(templates: Mapping[str, str], image: str = DEBIAN) -> str:
    return fill("guard/Dockerfile.j2", templates, image=image, packages=PACKAGES)


def guard_context(templates: Mapping[str, str], package: Mapping[str, bytes], image: str = DEBIAN) -> Context:
    """Return the build context of the guard's image. `package`: this package's source by path; `image`: the base."""
    sent = {f"files/sparkops/{path}": content for path, content in package.items() if not path.startswith(NOT_SENT)}
    files: dict[str, Content] = {"Dockerfile": guard_dockerfile(templates, image).encode(), **directories(sent), **sent}
    return pack(files)
