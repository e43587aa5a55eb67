"""The files that tell sparkops about the fleet: inventory and pinned host keys."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from . import images
from .node import FleetNode
from .shell import FleetError, run

PLAIN = re.compile(r"[A-Za-z0-9/.][A-Za-z0-9/._:+~@%-]*")


def write(path: Path, nodes: Sequence[FleetNode], ssh_key: Path) -> Path:
    """An inventory at `path`, with the nodes' host keys beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = path.with_name("known_hosts" if path.stem == "inventory" else f"{path.stem}.known_hosts")
    keys.write_text("".join(f"{node.name} {node.host_key}\n" for node in nodes))
    path.write_text(text(nodes, keys.name, os.path.relpath(ssh_key, path.parent)))
    return path


def text(nodes: Sequence[FleetNode], known_hosts: str, ssh_key: str) -> str:
    lines = [
        f"known_hosts: {scalar(known_hosts)}",
        "defaults:",
        "  user: ops",
        f"  ssh_key: {scalar(ssh_key)}",
        "  model_dir: /srv/models",
        "  gpu: none",
    ]
    build = build_settings(pip_settings())
    lines += ["build:"]
    lines += [f"  {key}: {value}" for key, value in build.items()]
    lines += ["nodes:", *(f"  {node.name}: {{address: {node.address}}}" for node in nodes)]
    lines += [f"gateway: {{node: {nodes[0].name}}}"]
    return "\n".join(lines) + "\n"


def build_settings(pip: Mapping[str, str]) -> dict[str, str]:
    """What a build on this machine needs, and the bases that its nodes hold."""
    bases = (f"{image.base}: {image.base}" for image in images.recipe_bases())
    settings = {"parent_images": f"{{{', '.join(bases)}}}"}  # those on the nodes may be made here, and have no digest
    if wheels := wheel_folder(pip.get("find-links", "")):
        settings["wheels"] = scalar(wheels)
    if index := pip.get("index-url"):
        settings["package_index"] = scalar(index)
    if paths := images.certificates():
        settings["ca_certificates"] = f"[{', '.join(scalar(str(path)) for path in paths)}]"
    return settings


def wheel_folder(links: str) -> str | None:
    for link in links.split():
        folder = Path(unquote(urlparse(link).path) if link.startswith("file:") else link)
        if folder.is_dir() and any(folder.glob("torch-*.whl")):
            return str(folder.absolute())
    return None


def pip_settings() -> dict[str, str]:
    """pip's own view, lowest rank first: files, then the environment. No pip: the latter."""
    listing = ""
    for program in ((sys.executable, "-m", "pip"), (shutil.which("pip") or "pip",)):
        try:
            listing = run(*program, "config", "list")
            break
        except FleetError:
            continue
    rows = re.findall(r"^(?:global|user|site)\.([a-z-]+)='(.*)'$", listing, re.MULTILINE)
    settings = dict(rows)
    for key in ("find-links", "index-url"):
        if given := os.environ.get(f"PIP_{key.replace('-', '_').upper()}"):
            settings[key] = given
    return settings


def scalar(value: str) -> str:
    """YAML reads any JSON string; what needs no quotes stays plain."""
    return value if PLAIN.fullmatch(value) else json.dumps(value)
