"""Both ends of an image's way from node to node, as programs of a transfer. Nothing here runs anything."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sparkops.transfer.commands import EndProgram

READS = (
    "--user=0",
    "--read-only",
    "--cap-drop=ALL",
    "--cap-add=DAC_READ_SEARCH",
    "--security-opt=no-new-privileges",
)
"""Rights to read every file, and to write none."""


def load(checking: str) -> EndProgram:
    """Give what comes to Docker if it is one image without a name, with `checking`, the text of templates/node/load.py.

    Docker sees no end of it unless all has come and passed.
    """
    return EndProgram(("python3", "-c", checking, "docker", "load", "--quiet"), called="docker load")


def save_image(filtering: str, image: str, held: int, named: Sequence[str]) -> EndProgram:
    """Print `image` (an ID) without its first `held` layers, with `filtering`, the text of templates/node/layers.py.

    By its ID it has no name in what is printed: a target gives it one when it has looked at it.
    """
    request = json.dumps({"image": image, "held": held, "named": named})
    return EndProgram(("python3", "-c", filtering, request), called="docker save")


def read_layers(reading: str, store: str, reader: str, image: str, held: int, layers: Sequence[str]) -> EndProgram:
    """Print the same without `docker save`: `reading` is the text of templates/node/graph.py.

    It runs in a container of the image `reader`, which needs Python, and sees Docker's `store` and nothing else; the
    directories of layers belong to root. `layers` are the digests of all layers of the image.
    """
    request = json.dumps({"image": image, "held": held, "layers": layers})
    mounts = {f"{store}/image/overlay2": "/store/image", f"{store}/overlay2": "/store/layers"}
    sees = (f"--mount=type=bind,source={source},target={target},readonly" for source, target in mounts.items())
    run = ("docker", "run", "--rm", "--interactive", "--network=none", "--log-driver=none", "--pull=never")
    argv = (*run, *READS, *sees, "--entrypoint=python3", reader, "-c", reading, request)
    return EndProgram(argv, called="the reader of Docker's store")
