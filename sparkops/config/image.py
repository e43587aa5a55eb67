"""The image: its sources, and the changes to it."""

from __future__ import annotations

from typing import Annotated

from pydantic import model_validator

from sparkops.config.fields import ImageRef, Name, Package, Positive, Requirement, Section, Version, matching, wrong_at

FINISHED = "finished"
"""The template of finished images, which adds the user of engines, mods and packages."""
PATCH = ".patch"
"""Suffix of a mod that is a unified diff."""
CHAT_TEMPLATE = ".jinja"
"""Suffix of a mod that is a chat template."""
CHAT_TEMPLATES = "/opt/sparkops/templates"
"""The directory of an image with the chat templates among its mods."""


Backend = Annotated[str, matching(r"cpu|cu[0-9]{3}", "cpu or a CUDA build such as cu130")]


class Torch(Section):
    """The version of torch in every stage of the Dockerfile."""

    version: Version
    """Version without its local part, such as 2.11.0."""
    backend: Backend
    """`cpu` or a CUDA build such as `cu130`; checked in the built image."""
    local_version: bool = True
    """Whether the version of the wheels has the backend (2.11.0+cu130), as in PyTorch's index. With `false` torch comes
    from the package index, whose versions lack it."""

    @property
    def pin(self) -> str:
        """The requirement that the override file holds, such as torch==2.11.0+cu130."""
        return f"torch=={self.version}" + (f"+{self.backend}" if self.local_version else "")

    @property
    def cuda(self) -> str | None:
        """What torch.version.cuda must begin with, such as 13.0; None for the CPU."""
        return None if self.backend == "cpu" else f"{self.backend[2:-1]}.{self.backend[-1]}"


class Repository(Section):
    """Source code at one commit; branches and tags are not accepted, because they can move."""

    url: Annotated[str, matching(r"https://[A-Za-z0-9.-]+(/[A-Za-z0-9._-]+)+", "a git repository's https:// URL")]
    """URL for git. It is written into the Dockerfile, so it must not contain credentials."""
    commit: Annotated[str, matching(r"[0-9a-f]{40}", "a whole commit of 40 hex digits")]
    """Commit to fetch."""


class Image(Section):
    """Content of the image."""

    use: ImageRef | None = None
    """A finished image with the engine, such as vllm/vllm-openai@sha256:DIGEST, instead of `template` and `base`.
    `sparkops recipe lock` pins a tag. `torch` and `vllm` are compared if they are stated; else any version of the
    engine whose kernels load and any torch for CUDA will do."""
    template: Name = FINISHED
    """File in templates/ without `.Dockerfile.j2`; not with `use`."""
    base: ImageRef | None = None
    """Image in FROM of every stage of the template; @sha256: pins it."""
    torch: Torch | None = None
    """torch, for engines that need it."""
    backend: Backend | None = None
    """Where an engine without torch computes: `cpu` or a CUDA build such as `cu130`; the engine's default if absent.
    Not with `torch`, which has its own. The template `llama-cpp` compiles for it."""
    vllm: Requirement | None = None
    """The vLLM distribution, pinned with ==; checked in the built image."""
    source: Repository | None = None
    """Source that the node compiles vLLM from, if no wheel fits the recipe."""
    packages: list[Requirement] = []
    """Additional Python packages, pinned with ==."""
    override: list[Requirement] = []
    """Python packages forced to this version, even if another package excludes it."""
    apt: list[Package] = []
    """Additional packages of the base image's distribution."""
    remove: list[Package] = []
    """Python packages to leave out, even if another package requires them."""
    mods: list[Name] = []
    """Mods from templates/mods or ./mods, applied in this order; each checks its target and leaves a marker. A name
    that ends in .patch is a unified diff, applied to `source` before the compilation, or without `source` to the
    installed files; one in .jinja is a chat template, for `chat-template: /opt/sparkops/templates/NAME.jinja`."""
    disk_gib: Positive = 40.0
    """Free disk in GiB that a build requires."""

    @property
    def requirement(self) -> str | None:
        """The requirement of the engine's own package; None if the recipe states none."""
        return self.vllm

    @model_validator(mode="after")
    def _is_built_or_used(self) -> Image:
        if self.torch and self.backend:
            raise wrong_at(("backend",), "not allowed with `torch`: state torch.backend")
        if self.use is None:
            for key in ("template", "base"):
                if getattr(self, key) in (None, FINISHED):
                    raise wrong_at((key,), "missing; or name a finished image with `use`")
            return self
        for key in ("template", "base", "source"):
            if getattr(self, key) not in (None, FINISHED):
                raise wrong_at((key,), "not allowed with `use`: a finished image is not built")
        added = next((key for key in ("packages", "override", "remove") if getattr(self, key)), "")
        if added and self.torch is None:
            raise wrong_at(("torch",), f"missing: `{added}` would replace a torch that no pin holds")
        return self

    @property
    def parent(self) -> str:
        """The image in FROM."""
        return self.use or self.base or ""

    @property
    def mod_files(self) -> list[str]:
        """The file of each mod."""
        return [name if name.endswith((PATCH, CHAT_TEMPLATE)) else f"{name}.py" for name in self.mods]

    @property
    def source_version(self) -> str:
        """The version that a vLLM from `source` reports: that of `vllm`, and the commit."""
        version = self.vllm.partition("==")[2] if self.vllm else "0"
        return f"{version}+g{self.source.commit[:9]}" if self.source else version

    @property
    def source_patches(self) -> list[str]:
        """The mods that are applied to the source before it is compiled."""
        return [name for name in self.mods if self.source and name.endswith(PATCH)]

    @property
    def installed_mods(self) -> list[str]:
        """The mods that are applied to what is installed."""
        return [name for name in self.mods if name not in self.source_patches]
