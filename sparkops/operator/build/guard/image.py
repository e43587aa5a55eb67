"""The guard's image: Debian's Python with libraries, and what the guard imports of this copy of sparkops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sparkops.operator.build.render.context import Content, Context, directories, pack
from sparkops.operator.build.render.debian import upgraded
from sparkops.operator.build.render.dockerfile import dockerfile

DISK_GIB = 1.0
"""Free space in GiB that a node needs before the image is built."""
DEBIAN = "debian:trixie-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f"
"""The image for all architectures."""
PACKAGES = (
    "ca-certificates",
    "docker-cli",
    "nftables",
    "python3",
    "python3-docker",
    "python3-prometheus-client",
    "python3-pydantic",
    "python3-requests",
    "python3-tenacity",
    "tini",
)
PROGRAMS = ("guard/__main__.py", "guard/ask.py", "guard/check.py", "guard/replacing.py")
"""What runs in a container of this image."""
FROM = re.compile(rb"^from (sparkops[.\w]*) import (\([^)]*\)|[^\n#]*)", re.MULTILINE)
NAME = re.compile(rb"\w+")


def guard_dockerfile(templates: Mapping[str, str], image: str = DEBIAN, day: str | None = None) -> str:
    """Return the Dockerfile of the guard's image, with Debian's packages of a day; that of sparkops if None."""
    return upgraded(dockerfile("guard/Dockerfile.j2", templates, image=image, packages=PACKAGES), day)


def guard_context(
    templates: Mapping[str, str], package: Mapping[str, bytes], image: str = DEBIAN, day: str | None = None
) -> Context:
    """Return the build context of the guard's image. `package`: this package's source by path; `image`: the base."""
    sent = {f"files/sparkops/{path}": package[path] for path in sorted(imported(package))}
    files: dict[str, Content] = {
        "Dockerfile": guard_dockerfile(templates, image, day).encode(),
        **directories(sent),
        **sent,
    }
    return pack(files)


def imported(package: Mapping[str, bytes]) -> set[str]:
    """Return the paths of PROGRAMS and of everything that they import: a change of anything else needs no new guard.

    Imports stand at the start of a line, which a test requires of all modules. Parsing the package would take 0.3 s.
    """
    reached, open_paths = set[str](), [path for path in PROGRAMS if path in package]
    while open_paths:
        path = open_paths.pop()
        if path not in reached:
            reached.add(path)
            open_paths += (other for other in _imports(path, package[path]) if other in package)
    return reached


def _imports(path: str, content: bytes) -> Iterator[str]:
    """Yield the files that a module may mean by its imports, and the packages that it is in."""
    parts = path.split("/")
    yield from ("/".join((*parts[:depth], "__init__.py")) for depth in range(len(parts)))
    for module, names in FROM.findall(content):
        place = "/".join(module.decode().split(".")[1:])
        meant = [place, *(f"{place}/{name.decode()}".lstrip("/") for name in NAME.findall(names))]
        yield from (f"{name}.py" for name in meant)
        yield from (f"{name}/__init__.py".lstrip("/") for name in meant)
