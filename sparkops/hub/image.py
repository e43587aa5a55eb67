"""The image for downloads of models: Debian's Python with huggingface_hub, independent of recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sparkops.config.assets import BuildInputs
from sparkops.guard_client.image import DEBIAN
from sparkops.render.context import Content, Context, index, pack, places
from sparkops.render.sandbox import fill

IMAGE = DEBIAN
HUB = "hub"
"""Name of the image and its builds, in place of a recipe's name."""
DISK_GIB = 1.0
"""Free space in GiB that a node needs before the image is built."""


def hub_dockerfile(templates: Mapping[str, str], image: str = IMAGE) -> str:
    return fill("hub/Dockerfile.j2", templates, image=image)


def hub_context(templates: Mapping[str, str], requirements: bytes, inputs: BuildInputs, image: str = IMAGE) -> Context:
    """Return the context of the build. The wheels of the inventory are for recipes, and are not sent."""
    files: dict[str, Content] = {
        "Dockerfile": hub_dockerfile(templates, image).encode(),
        "requirements.txt": requirements,
        **places(replace(inputs, wheels=())),
    }
    return pack(files, secrets=index(inputs))
