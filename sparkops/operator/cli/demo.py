"""The verb demo."""

from __future__ import annotations

import os
import platform
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any, TextIO

import typer

from sparkops.command import Command, quote
from sparkops.config import inventory, shipped
from sparkops.config.inventory import Build
from sparkops.config.node import NodeConfig
from sparkops.errors import Interrupted, SparkopsError, UsageError, joined
from sparkops.node import host
from sparkops.node.agents.commands import PEER_PORT
from sparkops.node.docker import places
from sparkops.node.docker_api import Engine
from sparkops.node.local import LocalNode
from sparkops.node.member import Member
from sparkops.node.progress import Event
from sparkops.operator.build.images.build import without_buildkit
from sparkops.operator.cli.images import make_order
from sparkops.operator.cli.named import load_recipe
from sparkops.operator.cli.options import JSON, YES, whole
from sparkops.operator.cli.progress import progress
from sparkops.operator.cli.terminal import confirm, data, data_json, say, write
from sparkops.operator.demo import record, scene
from sparkops.operator.demo.counting import counting
from sparkops.operator.demo.machine import CLIENT, REMOVE, MachineFacts, foreign, refusals, unsuitable
from sparkops.operator.demo.record import DemoRecord
from sparkops.operator.demo.scene import NODE, PORT, SERVICE, STAND_IN, VLLM, DemoEngine, Ports
from sparkops.operator.demo.screen import DemoResult, Opening, ending, opening
from sparkops.operator.demo.traffic.generator import Traffic
from sparkops.operator.deploy.prune.uninstall import VOLUMES, agents, own_volumes
from sparkops.operator.deploy.prune.uninstalling import discard, plan_discard, read
from sparkops.operator.fleet.connected import connect

VOLUME_NAMES = Command(("docker", "volume", "ls", "--quiet"), timeout_s=60.0)
INTERRUPTED = 130
PORTS = 5
"""Ports of a demonstration: the four from `--port` on, and that of the guard."""


def demo(
    context: typer.Context,
    port: Annotated[
        int,
        typer.Option(parser=whole(1024, 65000), metavar="PORT", help="Port for clients; the next three are used too"),
    ] = PORT,
    vllm: Annotated[bool, typer.Option("--vllm", help="Use the real vLLM on the CPU, with a tiny model")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the demonstration, to try commands on it")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove a kept or interrupted demonstration")] = False,
    yes: YES = False,
    json: JSON = False,
) -> None:
    """Try a swap under load on this machine

    Needs Linux with Docker, no GPU and no inventory. Deploys a stand-in for vLLM, replaces it by another release while
    clients send requests, rolls back, counts lost requests and removes what it has made. Prints first what will run
    and with which rights, then asks. Of an inventory, only `build` (mirrors, certificates) is used.

    Exit code 1 if a request was lost, 2 if the confirmation is denied, 5 if this machine is not suited or not free.

    Example: sparkops demo --keep
    """
    if remove and (port != PORT or vllm or keep):
        raise UsageError("--remove: not with --port, --vllm or --keep", next_step=REMOVE)
    place, engine, ports = Place(_directory()), VLLM if vllm else STAND_IN, Ports(port)
    if remove:
        _remove(place, yes=yes, json=json)
        return
    _require(unsuitable(MachineFacts(sys.platform)))  # before its commands, which need Linux
    if len(ports.words) < PORTS:
        problem = f"--port {port}: {port} to {ports.metrics} include {PEER_PORT}, the port of the guard"
        raise UsageError(problem, next_step=f"sparkops demo --port {PEER_PORT + 1}")
    for line in opening(_opening(place, engine, ports, keep=keep)):
        say(line)
    client = LocalNode(NODE).run(CLIENT).stdout
    _require(unsuitable(MachineFacts(sys.platform, client=client)))  # Podman's server may not run
    with _member(place) as member:
        facts, earlier = _facts(member), _recorded(member)
    _require(refusals(facts, ports, place.directory, earlier, exists=place.directory.exists()))
    if not confirm("Run it?", yes=yes):
        raise typer.Exit(2)
    with _stoppable():
        result = _run(context, place, engine, ports, keep=keep)
    if json:
        data_json({**result.as_json(), "inventory": str(place.inventory) if keep else None, "kept": keep})
    else:
        say("")
        data("\n".join(ending(result, _further(place, engine, ports, keep=keep))))
    if result.total.lost:
        raise SparkopsError(f"{result.total.lost} requests were lost", next_step="Report it with the lines above.")


@dataclass(frozen=True)
class Place:
    """The directory of a demonstration, which exists as long as it does."""

    directory: Path

    @property
    def inventory(self) -> Path:
        return self.directory / "inventory.yaml"

    @property
    def recipe(self) -> Path:
        return self.directory / f"{scene.RECIPE}.yaml"

    @property
    def models(self) -> Path:
        return self.directory / "models"

    def make(self, files: Mapping[Path, str]) -> None:
        """Make the directory with its files. Raises UsageError."""
        for file, text in files.items():
            write(file, text)
        self.models.mkdir()

    def missing(self) -> tuple[str, ...]:
        """Return the directories that `make` creates: its own, then those above it."""
        return tuple(str(path) for path in (self.directory, *self.directory.parents) if not path.exists())

    def remove(self, created: Sequence[str]) -> None:
        """Remove the directory, and those of `created` above it, unless something else is there now."""
        if self.directory.exists():
            rmtree(self.directory)
        with suppress(OSError):
            for path in map(Path, created):
                if path != self.directory and path.exists():
                    path.rmdir()


def _directory() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser().absolute() / "sparkops/demo"


def _opening(place: Place, engine: DemoEngine, ports: Ports, *, keep: bool) -> Opening:
    """Return the first lines."""
    return Opening(
        title="sparkops demo: replace a running LLM server while clients use it, and count lost requests",
        steps=(
            f"build the engine ({engine.words}), guard and gateway (HAProxy)",
            "deploy a release behind the gateway, and send requests and streams to it",
            "replace it by a second release under load, then roll back",
            "print what was lost" + ("" if keep else ", and remove everything it has made, also after Ctrl-C"),
        ),
        facts={
            "Rights": (
                "the guard gets Docker's socket, which is as good as root on this machine, and NET_ADMIN for its",
                "firewall table, which closes the ports of releases to other machines. All containers use the host's",
                "network; gateway and releases run without root and without capabilities. At the end, a container",
                f"that is root deletes that table and {places.RUN}.",
            ),
            "Ports": [f"{number} {words}" for number, words in ports.words.items()],
            "Files": (f"{place.directory}, {places.RUN}, and volumes of Docker named sparkops-*",),
            "Time": (engine.takes,),
        },
    )


@contextmanager
def _member(place: Place) -> Iterator[Member]:
    """Open this machine as a node. Raises NotReady if its Docker does not answer."""
    node = LocalNode(NODE)
    engine = Engine(node)
    try:
        yield Member(NODE, NodeConfig(transport="local", model_dir=str(place.models)), node, engine)
    finally:
        engine.close()


def _facts(member: Member) -> MachineFacts:
    """Read what decides whether this machine gets a demonstration. Raises NotReady if its Docker is not suited."""
    names = {name for name in agents() if member.engine.container(name)}
    names |= {name.lstrip("/") for listed in member.engine.listed() for name in listed["Names"]}
    names |= {*VOLUMES} & {*member.node.run(VOLUME_NAMES).stdout.split()}
    facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
    version = member.engine.version
    parts = [part["Name"] for part in version.get("Components") or ()]
    info = member.engine.info()
    machine = MachineFacts(sys.platform, platform.node(), info, names, facts.listening, server=parts)
    _require(unsuitable(machine))
    if problem := without_buildkit(NODE, facts, str(version.get("Version", "0"))):
        raise problem
    return machine


def _require(problems: Iterator[SparkopsError]) -> None:
    """Raise the problems, joined, if there are any."""
    if found := list(problems):
        raise joined(found)


def _recorded(member: Member) -> DemoRecord | None:
    """Return the record of a demonstration on this machine. Raises SparkopsError for one that cannot be read."""
    return record.parse(member.node.run(record.READ).stdout)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Treat the end of the terminal and `kill` as Ctrl-C, so that they remove the demonstration too."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Unread:
    """A text stream that drops what it cannot write."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def _unread() -> Iterator[None]:
    """Ignore errors of stderr, which has no reader any more after `| head` or the end of the terminal."""
    unread: Any = _Unread(sys.stderr)
    with redirect_stderr(unread):
        yield


def _run(context: typer.Context, place: Place, engine: DemoEngine, ports: Ports, *, keep: bool) -> DemoResult:
    """Run the demonstration and remove it unless `keep`."""
    build = _build_settings(context.obj.inventory)
    with _member(place) as member:
        stored = read(member).stored
        images = (name for image in stored.images for name in image.tags or (image.id,))
        spared = (*images, *own_volumes(stored))
        recorded = DemoRecord(str(place.directory), os.getuid(), spared, place.missing())
        member.node.run(recorded.keep())
    texts = {place.inventory: scene.inventory(ports, place.directory, build), place.recipe: scene.recipe(engine, ports)}
    acts = Acts(context, place)
    try:
        place.make(texts)
        result = _perform(acts, engine, ports)
    finally:
        if keep:
            say(f"kept; to remove it: {REMOVE}", bold=True)
        else:
            with _unread():
                acts.begin("removal")
                _discard(place, recorded)
    return DemoResult(SERVICE, engine.extends, result, [*acts.began, ("", time.monotonic())])


def _build_settings(file: Path) -> Build:
    """Return the settings for builds of an inventory, with absolute paths; the defaults without a file."""
    if not file.exists():
        return Build()
    fleet = inventory.load(file)
    build = fleet.build
    certificates = [str(fleet.resolve(path)) for path in build.ca_certificates]
    wheels = str(fleet.resolve(build.wheels)) if build.wheels else None
    return build.model_copy(update={"ca_certificates": certificates, "wheels": wheels})


@dataclass
class Acts:
    """Parts of the demonstration with their times, and commands as an operator types them."""

    context: typer.Context
    place: Place
    began: list[tuple[str, float]] = field(default_factory=list)

    def begin(self, title: str) -> None:
        """Print the title of a part."""
        self.began.append((title, time.monotonic()))
        say(f"\n== {title}", bold=True)

    def __call__(self, *words: str) -> None:
        """Run a verb in this process, as from a command line; its output goes to stderr. Raises SparkopsError."""
        say(f"$ sparkops {quote(*words)}", fg="cyan")
        program: Any = self.context.find_root().command
        arguments = ["--inventory", str(self.place.inventory), *words]
        with redirect_stdout(sys.stderr):
            code = program.main(arguments, prog_name="sparkops", standalone_mode=False)
        if code == INTERRUPTED:
            raise Interrupted("interrupted")
        if code:
            error = SparkopsError(f"`sparkops {quote(*words)}` ended with code {code}")
            error.exit_code = code
            raise error


def _perform(acts: Acts, engine: DemoEngine, ports: Ports) -> Mapping[str, Any]:
    """Deploy, swap under load and roll back. Returns the reports of the requests by part."""
    say(f"export SPARKOPS_INVENTORY={acts.place.inventory}")
    first, second = scene.deploy(acts.place.recipe), scene.deploy(acts.place.recipe, engine.second)
    if engine.trained:
        acts.begin("image and model")
        acts("build", str(acts.place.recipe))
        _train(acts.place)
    acts.begin("first release")
    acts("up", *first[1:])
    traffic = Traffic(f"http://127.0.0.1:{ports.first}", SERVICE, **engine.traffic)
    with counting(traffic) as counted:
        acts.begin("swap under load")
        with counted.part("swap"):
            acts(*second)
        acts.begin("rollback under load")
        with counted.part("rollback"):
            acts("rollback", SERVICE)
    return counted.parts


def _train(place: Place) -> None:
    """Train the tiny model with the image of the recipe."""
    fleet = inventory.load(place.inventory)
    tag = make_order(load_recipe(str(place.recipe), fleet), fleet).tag
    script = (shipped.directory("templates") / "demo/tiny_model.py").read_bytes()
    owner = f"{os.getuid()}:{os.getgid()}"
    with connect(fleet) as connected, progress() as report:
        report(Event(NODE, f"training {scene.TINY_MODEL}"))
        connected.member(NODE).node.run(scene.train(tag, script, place.models, owner))
    for file in (place.models / scene.TINY_MODEL).iterdir():
        file.chmod(0o644)  # safetensors writes 0600; the engine is another user


def _remove(place: Place, *, yes: bool, json: bool) -> None:
    """Remove a demonstration that was kept or has ended early, also if its directory was deleted.

    Raises PlanRefused for the guard of a fleet, for engines of other services and for another user's demonstration.
    """
    with _member(place) as member:
        recorded = _recorded(member)
    if recorded:
        place = Place(Path(recorded.directory))
    elif place.directory.exists():  # its volume was deleted: what this machine had before it is not known
        recorded = DemoRecord(str(place.directory), os.getuid())
    with _member(place) as member:
        guard = member.engine.container(places.CONTAINER)
        services = {engine.service for engine in read(member).stored.engines} if recorded else ()
        labels = guard["Config"]["Labels"] if guard else None
        if problem := foreign(labels, recorded, place.directory, os.getuid(), services):
            raise problem
        if recorded and not json:
            data(str(plan_discard(member, recorded.stays)))
    if recorded:
        if not confirm(f"Remove them, and {place.directory}?", yes=yes):
            raise typer.Exit(2)
        _discard(place, recorded)
    say("removed" if recorded else "no demonstration on this machine: nothing to do", fg="green")
    if json:
        data_json({"removed": recorded is not None})


def _discard(place: Place, recorded: DemoRecord) -> None:
    """Remove everything of the demonstration, its record last. Raises SparkopsError."""
    try:
        with _member(place) as member, progress() as report:
            discard(member, report, recorded.stays)
            place.remove(recorded.created)
            member.node.run(record.FORGET)
    except (SparkopsError, OSError, KeyboardInterrupt) as error:
        say(f"the demonstration was not removed completely; to retry: {REMOVE}", fg="red")
        if isinstance(error, OSError):
            raise SparkopsError(f"{error.filename}: cannot be removed: {error.strerror}", next_step=REMOVE) from None
        raise


def _further(place: Place, engine: DemoEngine, ports: Ports, *, keep: bool) -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return commands for the last screen, by topic."""
    if not keep:
        return {
            "Removed: containers, images, volumes, firewall table and files": [
                ("docker builder prune", "Docker's build cache stays, for the next demo")
            ],
            "Try next": [
                ("sparkops demo --keep", "the same, and it stays, to try commands on it"),
                ("sparkops init ADDRESS...", "an inventory of your Sparks, by their addresses"),
                ("sparkops recipes", "the models"),
            ],
        }
    recipe = quote(str(place.recipe))
    body = dumps({"model": SERVICE, "messages": [{"role": "user", "content": "Hello"}]})
    url = f"http://127.0.0.1:{ports.first}/v1/chat/completions"
    return {
        "Try next": [
            (f"export SPARKOPS_INVENTORY={quote(str(place.inventory))}", "let sparkops use the demonstration"),
            ("sparkops status", "what runs where"),
            (f"sparkops history {SERVICE}", "every step of the swap and the rollback"),
            (f"sparkops deploy {recipe} --set {engine.second} --dry-run", "every effect of a swap, with its command"),
            (f"curl {url} -H 'Content-Type: application/json' -d {quote(body)}", "a question through the gateway"),
        ],
        "Remove": [(REMOVE, "containers, images, volumes, firewall table and files")],
    }
