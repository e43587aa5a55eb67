"""Download a model from its hub to one node, with the hub's library, in an image of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sparkops.config.assets import BuildInputs
from sparkops.config.model import Weights
from sparkops.docker.commands import ask_image, model_dir
from sparkops.errors import NodeError, UsageError
from sparkops.hub import facts
from sparkops.hub.image import DISK_GIB, HUB, IMAGE, hub_context
from sparkops.images.build import BuildOrder, Gate, build_on
from sparkops.nodes.connected import Member
from sparkops.nodes.progress import ByteCount, Event, Meter, Tell
from sparkops.transfer import transfer
from sparkops.weights import commands, models
from sparkops.weights.checkpoint import Checkpoint, ModelDirectory
from sparkops.weights.plan import fetched, refused

ASK = b"import huggingface_hub; huggingface_hub.HfApi"
"""Imports the library, to show that the image can download."""


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
        raise UsageError(problem, next_step="Use the https:// URL of the mirror, or leave out --token-file.")


def hub_order(templates: Mapping[str, str], requirements: bytes, inputs: BuildInputs, image: str = IMAGE) -> BuildOrder:
    """Return the build of the image for downloads, on the base `image`."""
    context = hub_context(templates, requirements, inputs, image)
    return BuildOrder(HUB, context, DISK_GIB, Gate(lambda image: ask_image(image, ASK)))


def pull_model(member: Member, weights: Weights, source: Hub, tell: Tell) -> Checkpoint:
    """Download a model to a node, unless it is complete there. Raises NodeError."""
    directory = models.room(member, weights.path)
    checkpoint = directory.checkpoints.get(weights.path)
    if checkpoint and not any(refused(fetched(weights), checkpoint)):
        tell(Event(member.name, f"{weights.path} is up to date"))
        return checkpoint
    models.refuse_to_lose(member, fetched(weights), directory, replace=source.replace)
    image = build_on(member, source.order, tell).image
    tell(Event(member.name, f"fetching {weights.id}"))
    _fetch(member, image, weights, source, directory, tell)
    checkpoint = models.publish(member, weights.path)
    tell(Event(member.name, f"{weights.path} is complete"))
    return checkpoint


def _fetch(member: Member, image: str, weights: Weights, source: Hub, directory: ModelDirectory, tell: Tell) -> None:
    where = model_dir(member.config)
    inside = commands.container(where, image, (directory.user, directory.group), network="host", task="pull")
    command = commands.pull(inside, weights, source.token, source.endpoint)
    meter: Meter | None = None
    end: facts.Fetched | facts.Failure | None = None

    def report(line: str) -> None:
        nonlocal meter, end
        match facts.parse(line, anonymous=not source.token):
            case ByteCount(count, total):
                meter = meter or Meter(tell, member.name, f"fetching {weights.id}", total, at=count)
                meter(count)
            case facts.Fetched() | facts.Failure() as message:
                end = message
            case None:
                pass

    transfer.attended(member, command, report)
    if isinstance(end, facts.Failure):
        raise NodeError(member.name, f"{weights.id}: {end.problem}", next_step=end.next_step)
    if end is None:
        raise NodeError(member.name, f"{weights.id}: the download ended without a message", next_step="Retry.")
