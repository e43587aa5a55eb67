"""The image: its sources, and the changes to it."""

from __future__ import annotations

import hashlib
from typing import Annotated

from sparkops.config.fields import ImageRef, Name, Package, Positive, Requirement, Section, Version, matching

PATCH = ".patch"
"""Suffix of a mod that is a unified diff."""


class Torch(Section):
    """The torch that every stage of the Dockerfile is held to."""

    version: Version
    """Version without its local part, such as 2.11.0."""
    backend: Annotated[str, matching(r"cpu|cu[0-9]{3}", "cpu or a CUDA build such as cu130")]
    """`cpu` or a CUDA build such as `cu130`. The built image is asked for it."""
    local_version: bool = True
    """Whether the wheels' version names the backend (2.11.0+cu130). The package index's own do not: false takes torch
    from there, and not from PyTorch's index."""

    @property
    def pin(self) -> str:
        """The requirement that the override file holds, such as torch==2.11.0+cu130."""
        return f"torch=={self.version}" + (f"+{self.backend}" if self.local_version else "")

    @property
    def cuda(self) -> str | None:
        """What torch.version.cuda must begin with, such as 13.0; None for the CPU."""
        return None if self.backend == "cpu" else f"{self.backend[2:-1]}.{self.backend[-1]}"


class Repository(Section):
    """Source code at one commit. A branch or tag may move, so neither is taken."""

    url: Annotated[str, matching(r"https://[A-Za-z0-9.-]+(/[A-Za-z0-9._-]+)+", "a git repository's https:// URL")]
    """Where git fetches it. Without credentials: it stands in the Dockerfile."""
    commit: Annotated[str, matching(r"[0-9a-f]{40}", "a whole commit of 40 hex digits")]
    """The commit; git fetches exactly this one."""


class Image(Section):
    """How the image is made."""

    template: Name
    """File in templates/ without `.Dockerfile.j2`."""
    base: ImageRef
    """Image of every stage's FROM, or the finished image that is built upon. With @sha256: it cannot move."""
    torch: Torch | None = None
    """The torch of an engine that needs one."""
    vllm: Requirement | None = None
    """The vLLM distribution, pinned with ==. The built image is asked for it."""
    source: Repository | None = None
    """What vLLM is compiled from, on the node, where no wheel has what the recipe needs."""
    packages: list[Requirement] = []
    """Further Python packages, pinned with ==."""
    override: list[Requirement] = []
    """Python packages that are held at this version although another package refuses it."""
    apt: list[Package] = []
    """Further packages of the base image's distribution."""
    remove: list[Package] = []
    """Python packages that are kept out although another package asks for them."""
    mods: list[Name] = []
    """Mods from templates/mods, applied in this order; each checks what it finds and leaves a marker. A name that
    ends in .patch is a unified diff: it changes `source` before that is compiled, or else what is installed."""
    disk_gib: Positive = 40.0
    """Free space in GiB that a node needs before a build begins."""

    @property
    def source_version(self) -> str:
        """The version that a vLLM from `source` reports: that of `vllm`, and the commit."""
        version = self.vllm.partition("==")[2] if self.vllm else "0"
        return f"{version}+g{self.source.commit[:9]}" if self.source else version

    @property
    def cache(self) -> str:
        """Return the name of the build cache, shared by all images except those from source: one for a repository."""
        if self.source is None:
            return "sparkops-uv"
        return f"sparkops-source-{hashlib.sha256(self.source.url.encode()).hexdigest()[:12]}"

    @property
    def source_patches(self) -> list[str]:
        """The mods that are applied to the source before it is compiled."""
        return [name for name in self.mods if self.source and name.endswith(PATCH)]

    @property
    def installed_mods(self) -> list[str]:
        """The mods that are applied to what is installed."""
        return [name for name in self.mods if name not in self.source_patches]
