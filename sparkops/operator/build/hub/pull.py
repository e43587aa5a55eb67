"""Download a model from its hub to one node, with the hub's library, in an image of its own.

The image is Debian's Python with huggingface_hub, independent of recipes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from sparkops.config.assets import BuildInputs
from sparkops.config.model import Weights
from sparkops.errors import NodeError, UsageError
from sparkops.node.docker.commands import check_image, model_dir
from sparkops.node.member import Member
from sparkops.node.program import parsed
from sparkops.node.progress import ByteCount, Event, Meter, OnEvent
from sparkops.operator.build.guard.image import DEBIAN
from sparkops.operator.build.images.build import BuildOrder, Gate, build_on
from sparkops.operator.build.images.gated import GatedImages
from sparkops.operator.build.render.context import Content, Context, index, pack, places
from sparkops.operator.build.render.debian import upgraded
from sparkops.operator.build.render.dockerfile import dockerfile
from sparkops.operator.build.weights import commands, models
from sparkops.operator.build.weights.checkpoint import Checkpoint, ModelDirectory
from sparkops.operator.build.weights.plan import fetched, refused
from sparkops.operator.fleet.transfer import transfer

IMAGE = DEBIAN
HUB = "hub"
"""Name of the image and its builds, in place of a recipe's name."""
DISK_GIB = 1.0
"""Free space in GiB that a node needs before the image is built."""


def hub_dockerfile(templates: Mapping[str, str], image: str = IMAGE, day: str | None = None) -> str:
    """Return the Dockerfile of the image, with Debian's packages of a day; that of sparkops if None."""
    return upgraded(dockerfile("hub/Dockerfile.j2", templates, image=image), day)


def hub_context(
    templates: Mapping[str, str],
    requirements: bytes,
    inputs: BuildInputs,
    image: str = IMAGE,
    day: str | None = None,
) -> Context:
    """Return the context of the build. The wheels of the inventory are for recipes, and are not sent."""
    files: dict[str, Content] = {
        "Dockerfile": hub_dockerfile(templates, image, day).encode(),
        "requirements.txt": requirements,
        **places(replace(inputs, wheels=())),
    }
    return pack(files, secrets=index(inputs))


GIVE_ONE = "Create a token (type: read) at the hub, save it in a file of mode 0600, and pass --token-file."

# Source for 416: an article on the NVFP4 checkpoint (May 2026), whose download failed with it until a token was passed.
FAILURES: Mapping[str, tuple[str, str]] = {
    "range": ("the hub answered 416, Range Not Satisfiable", "Run the command again: it continues."),
    "gated": ("the model is gated", "Accept its conditions on the model's page, with the account of your token."),
    "revision": ("the hub does not have this revision of the model", "Correct model.revision of the recipe."),
    "unknown": (
        "the hub does not have this model, or hides it from this account",
        "Correct model.id, or pass --token-file.",
    ),
    "disabled": ("the hub has disabled this model", "Use another repository: model.id of the recipe."),
    "token": ("the hub wants a token, or does not accept this one (401)", GIVE_ONE),
    "denied": (
        "the hub refused access (403)",
        f"Accept the model's conditions on its page, with the account of your token. {GIVE_ONE}",
    ),
    "throttled": (
        "the hub refuses requests for now (429)",
        "Wait a few minutes: each request until then prolongs it. A token (--token-file) has a higher limit.",
    ),
    "server": ("the hub has a fault of its own", "Wait, then run the command again: it continues."),
    "certificate": (
        "the node does not trust the certificate of the hub or of a proxy",
        "Name the proxy's certificate in build.ca_certificates of the inventory, or use a mirror (--endpoint).",
    ),
    "disk": ("the disk is too small", "Free space on the node: sparkops models list"),
    "file": ("the repository lacks a file", "Correct model.file of the recipe, or its revision."),
    "path": (
        "the hub's list names a file outside of the model's directory",
        "Nothing was downloaded or removed. Use another hub or mirror (--endpoint).",
    ),
    "name": ("model.id is not the name of a model on a hub", "Write it as ORGANISATION/NAME."),
    "directory": ("the directory cannot be written to", "Make the SSH user of sparkops its owner."),
    "library": (
        "the image has no huggingface_hub",
        "Remove the image sparkops/hub from the node, then run the command again.",
    ),
    "incomplete": ("the downloaded files differ from the hub's list", "Run the command again: it continues."),
    "damaged": (
        "a file differs from the hub's list after two downloads",
        "Check the proxy or mirror, the node's disk and its memory, then run the command again.",
    ),
    "unreachable": (
        "the hub cannot be reached from this node",
        "Pull on a node with internet (--node), or through a mirror (--endpoint); then: sparkops models copy. "
        "Without internet, copy the directory to a node by hand, then from there to the others.",
    ),
    "other": ("the download failed", "Run the command again: it continues."),
}
ANONYMOUS = (
    "the hub answered 416, Range Not Satisfiable: its storage limits requests without a token, even for public models"
)
IMPORTS = b"import huggingface_hub; huggingface_hub.HfApi"
"""Imports the library, to check that the image can download."""


@dataclass(frozen=True)
class Hub:
    """Settings of a download: the image with the hub's library, the token and the URL of another hub, or empty.

    `replace`: also replace a complete directory that is known to be another model. Raises UsageError for a token
    that would be sent without encryption.
    """

    order: BuildOrder
    token: str = field(default="", repr=False)
    endpoint: str = ""
    replace: bool = False

    def __post_init__(self) -> None:
        require_encrypted(self.token, self.endpoint)


def require_encrypted(token: str, endpoint: str) -> None:
    """Raise UsageError for a token that would be sent to a URL without encryption."""
    if token and endpoint and urlsplit(endpoint).scheme != "https":
        problem = f"--endpoint: the token would be sent unencrypted to {endpoint}, expected https://"
        raise UsageError(problem, next_step="Use the https:// URL of the mirror, or omit --token-file.")


def hub_order(
    templates: Mapping[str, str],
    requirements: bytes,
    inputs: BuildInputs,
    image: str = IMAGE,
    noted_in: GatedImages | None = None,
    day: str | None = None,
) -> BuildOrder:
    context = hub_context(templates, requirements, inputs, image, day)
    return BuildOrder(HUB, context, DISK_GIB, Gate(lambda image: check_image(image, IMPORTS)), noted_in=noted_in)


def pull_model(member: Member, weights: Weights, source: Hub, report: OnEvent) -> Checkpoint:
    """Download a model to a node, unless it is complete there. Raises NodeError."""
    directory = models.room(member, weights.path)
    checkpoint = directory.checkpoints.get(weights.path)
    if checkpoint and not any(refused(fetched(weights), checkpoint)):
        report(Event(member.name, f"{weights.path} is up to date"))
        return checkpoint
    models.refuse_to_lose(member, fetched(weights), directory, replace=source.replace)
    image = build_on(member, source.order, report).image
    report(Event(member.name, f"downloading {weights.id}"))
    _fetch(member, image, weights, source, directory, report)
    checkpoint = models.publish(member, weights.path)
    report(Event(member.name, f"{weights.path} is complete"))
    return checkpoint


def _fetch(
    member: Member, image: str, weights: Weights, source: Hub, directory: ModelDirectory, report: OnEvent
) -> None:
    where = model_dir(member.config)
    inside = commands.container(where, image, (directory.user, directory.group), network="host", task="pull")
    command = commands.pull(inside, weights, source.token, source.endpoint)
    meter: Meter | None = None
    end: Fetched | Failure | None = None

    def read_line(line: str) -> None:
        nonlocal meter, end
        match parse(line, anonymous=not source.token):
            case ByteCount(count, total):
                meter = meter or Meter(report, member.name, f"downloading {weights.id}", total, at=count)
                meter(count)
            case Fetched() | Failure() as message:
                end = message
            case None:
                pass

    transfer.attended(member, command, read_line)
    if isinstance(end, Failure):
        raise NodeError(member.name, f"{weights.id}: {end.problem}", next_step=end.next_step)
    if end is None:
        raise NodeError(member.name, f"{weights.id}: the download ended without a message", next_step="Retry.")


@dataclass(frozen=True)
class Fetched:
    """The end of a download."""


@dataclass(frozen=True)
class Failure:
    """Why a download failed, and the next step."""

    problem: str
    next_step: str


def parse(line: str, *, anonymous: bool) -> ByteCount | Fetched | Failure | None:
    """Parse a line of templates/node/pull.py; None for other text, such as a warning of the library."""
    match message := parsed(line):
        case {"bytes": int(count), "total": int(total)}:
            return ByteCount(count, total)
        case {"done": {"commit": str(), "bytes": int()}}:
            return Fetched()
        case {"error": str(kind), "text": str()}:
            return _failure(kind, message, anonymous=anonymous)
        case _:
            return None


def _failure(kind: str, message: Mapping[str, Any], *, anonymous: bool) -> Failure:
    problem, step = FAILURES.get(kind, FAILURES["other"])
    if kind == "range" and anonymous:
        problem, step = ANONYMOUS, GIVE_ONE
    first = (message["text"].strip().splitlines() or [""])[0]
    return Failure(f"{problem} ({first})" if first else problem, step)
