"""Both ends of an image's way from node to node, as programs of a transfer. Nothing here runs anything."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sparkops.commands.transfer import Program

LOAD = Program(("docker", "load", "--quiet"))
"""Give what comes to Docker, which sees no end of it unless all has come."""


def save(filtering: str, image: str, held: int, named: Sequence[str]) -> Program:
    """Print `image` (an ID) without its first `held` layers, with `filtering`, the text of templates/node/layers.py.

    By its ID it has no name in what is printed: a target gives it one when it has looked at it.
    """
    asked = json.dumps({"image": image, "held": held, "named": named})
    return Program(("python3", "-c", filtering, asked), called="docker save")
