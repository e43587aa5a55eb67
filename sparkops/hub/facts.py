"""Output of the download of a model, as values: progress, the end, or the failure with its next step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkops.nodes.progress import ByteCount

GIVE_ONE = "Make a token (type: read) in your account of the hub, put it into a file of mode 0600, give --token-file."

# Source for 416: the seed article on the NVFP4 checkpoint (May 2026), whose download failed so until a token was given.
WHY: Mapping[str, tuple[str, str]] = {
    "range": ("the hub answered 416, Range Not Satisfiable", "Run it again; what has arrived is kept."),
    "gated": ("the model is gated", "Accept its conditions on the model's page, with the account of your token."),
    "revision": ("the hub has no such revision of the model", "Correct model.revision of the recipe."),
    "unknown": (
        "the hub knows no such model, or hides it from this account",
        "Correct model.id, or give --token-file.",
    ),
    "denied": ("the hub refused access", GIVE_ONE),
    "throttled": ("the hub takes no more requests for now (429)", "Wait some minutes, or give --token-file."),
    "disk": ("the disk is too small", "Free space on the node: sparkops models list shows what takes it."),
    "name": ("model.id is no name of a model on a hub", "Write it as ORGANISATION/NAME."),
    "directory": ("the directory cannot be written to", "Give it to the user that sparkops logs in as."),
    "library": (
        "the image has no huggingface_hub",
        "Remove the image sparkops/hub from the node, and run it again.",
    ),
    "incomplete": ("the hub's own list and what has arrived differ", "Run it again; what has arrived is kept."),
    "unreachable": (
        "the hub cannot be reached from there",
        "Pull on a node with internet (--node), or through a mirror (--endpoint); then: sparkops models copy. "
        "Without internet at all, copy the directory to a node by hand, and from there to the others.",
    ),
    "other": ("the download failed", "Run it again; what has arrived is kept."),
}
ANONYMOUS = (
    "the hub answered 416, Range Not Satisfiable: its storage limits who comes without a token, for public models too"
)


@dataclass(frozen=True)
class Fetched:
    """The end of a download: the commit and its bytes."""

    commit: str
    size: int


@dataclass(frozen=True)
class Failure:
    """Why a download failed, and the next step."""

    problem: str
    next_step: str


def parse(line: str, *, anonymous: bool) -> ByteCount | Fetched | Failure | None:
    """Read a line of templates/node/pull.py; None for anything else, such as a warning of the library."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    match message:
        case {"bytes": int(count), "total": int(total)}:
            return ByteCount(count, total)
        case {"done": {"commit": str(commit), "bytes": int(size)}}:
            return Fetched(commit, size)
        case {"error": str(kind), "text": str()}:
            return _failure(kind, message, anonymous=anonymous)
        case _:
            return None


def _failure(kind: str, message: Mapping[str, Any], *, anonymous: bool) -> Failure:
    problem, step = WHY.get(kind, WHY["other"])
    if kind == "range" and anonymous:
        problem, step = ANONYMOUS, GIVE_ONE
    first = (message["text"].strip().splitlines() or [""])[0]
    return Failure(f"{problem} ({first})" if first else problem, step)
