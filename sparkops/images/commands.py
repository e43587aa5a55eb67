"""Both ends of the copy of an image from node to node, as programs of a transfer."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sparkops.config import programs
from sparkops.transfer.commands import EndProgram

READS = ("--user=0", "--read-only", "--cap-drop=ALL", "--cap-add=DAC_READ_SEARCH", "--security-opt=no-new-privileges")
"""Rights to read every file, and to write none."""


def load() -> EndProgram:
    """Pass the input to `docker load` if it is one image without a name, and end it only when all has passed."""
    [text] = programs.load(*programs.LOAD).values()
    return EndProgram(("python3", "-c", text, "docker", "load", "--quiet"), called="docker load")


def save_image(image: str, skip: int, names: Sequence[str]) -> EndProgram:
    """Print `image` (an ID) without its first `skip` layers, and without a name: a target names it after a check."""
    [text] = programs.load(*programs.LAYERS).values()
    request = json.dumps({"image": image, "skip": skip, "names": names})
    return EndProgram(("python3", "-c", text, request), called="docker save")


def read_layers(store: str, reader: str, image: str, skip: int, layers: Sequence[str]) -> EndProgram:
    """Print the same without `docker save`, with templates/node/graph.py.

    It runs in a container of the image `reader`, which needs Python, and sees Docker's `store` and nothing else; the
    directories of layers belong to root. `layers` are the digests of all layers of the image.
    """
    [text] = programs.load(*programs.GRAPH).values()
    request = json.dumps({"image": image, "skip": skip, "layers": layers})
    mounts = {f"{store}/image/overlay2": "/store/image", f"{store}/overlay2": "/store/layers"}
    options = (f"--mount=type=bind,source={source},target={target},readonly" for source, target in mounts.items())
    run = ("docker", "run", "--rm", "--interactive", "--network=none", "--log-driver=none", "--pull=never")
    argv = (*run, *READS, *options, "--entrypoint=python3", reader, "-c", text, request)
    return EndProgram(argv, called="the reader of Docker's store")
