"""The verb init."""

from __future__ import annotations

import getpass
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from sparkops.command import quote
from sparkops.config import files, inventory
from sparkops.config.inventory import Fleet
from sparkops.errors import ConfigError, HostKeyRefused, NotReady, SparkopsError, UsageError
from sparkops.node import host
from sparkops.operator.cli.doctor import doctor
from sparkops.operator.cli.named import load_fleet
from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.terminal import say, visible, write
from sparkops.operator.cli.trust import pin
from sparkops.operator.fleet.connect import Connector, configured, read_key
from sparkops.operator.fleet.host_keys import rename
from sparkops.operator.fleet.network.facts import fabric_query, parse_fabric
from sparkops.operator.fleet.parallel import on_each
from sparkops.operator.status.doctor import discovery, facts
from sparkops.operator.status.doctor.discovery import Discovered
from sparkops.operator.status.join import leaders_of
from sparkops.operator.status.observation import reported
from sparkops.operator.status.read import Reader

Routes = Mapping[str, Mapping[str, str]]
T = TypeVar("T")
SEAL = "# sparkops init replaces this file until it is edited: sha256 "
"""Start of the last line of a new inventory; the digest of all lines above follows."""


def init(
    context: typer.Context,
    addresses: Annotated[
        list[str] | None,
        typer.Argument(metavar="[USER@]ADDRESS", help="Addresses of your nodes; default: this machine"),
    ] = None,
    user: Annotated[
        str, typer.Option(metavar="USER", help="SSH user; default: that of ~/.ssh/config, else the local one")
    ] = "",
    ssh_key: Annotated[
        Path | None,
        typer.Option("--ssh-key", metavar="FILE", help="SSH key for all nodes; written to the inventory"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Pin host keys without asking")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing inventory")] = False,
    gateway: Annotated[
        str, typer.Option("--gateway", metavar="NODE", help="Add the gateway to an inventory that has none, on NODE")
    ] = "",
) -> None:
    """Create an inventory file

    Asks before it pins a host key, reads GPU, memory, fabric and model directories of each node, writes the inventory
    with the gateway on the first node, and runs doctor. Names and gateway of a fleet that runs are those of its
    guards. Changes nothing on the nodes.

    An inventory that was edited is replaced only with --force, which keeps it as FILE.old. One with a node that cannot
    be read now stays as it is.

    Exit code 1 if a node was not read, which is then a comment in a new inventory, or if doctor finds a problem.

    Example: sparkops init 192.168.1.11 192.168.1.12
    """
    settings: Settings = context.obj
    if settings.inventory.is_dir():
        raise UsageError(f"{settings.inventory} is a directory", next_step="Pass a file with --inventory.")
    if ssh_key and not addresses:
        raise UsageError("--ssh-key: no node to connect to", next_step="Name the ADDRESS of each node.")
    if gateway and addresses:
        problem = "--gateway: not with addresses: a new inventory has the gateway on its first node"
        raise UsageError(problem, next_step="Leave out --gateway, and name the address of that node first.")
    without_effect = {"--user": user and not addresses, "--force": gateway and force, "--yes": gateway and yes}
    if refused := [option for option, ignored in without_effect.items() if ignored]:
        beside = "--gateway" if gateway else "no ADDRESS"
        raise UsageError(f"{' and '.join(refused)}: no effect with {beside}", next_step="sparkops init --help")
    if gateway:
        _add_gateway(load_fleet(settings), gateway)
        return
    if settings.inventory.exists() and not force and not _is_unedited(settings.inventory):
        step = "Edit it, pass another with --inventory, or replace it with --force."
        raise UsageError(f"{settings.inventory} exists already", next_step=step)
    named = {"user": user} if user else {}
    if ssh_key:
        named["ssh_key"] = _usable(ssh_key, settings.inventory)
    routes = _routes(addresses or (), named)
    draft = _draft(settings, routes)
    known, lost = _discover(draft, yes=yes)
    names = discovery.names(list(routes), known)
    rename(draft.known_hosts, {name: new for name, new in names.items() if name in known})
    routes, known, lost = _renamed(routes, names), _renamed(known, names), _renamed(lost, names)
    reasons = {name: getattr(error, "problem", str(error)) for name, error in lost.items()}
    text = visible(discovery.inventory(routes, known, reasons))
    kept = lost and _knows(settings.inventory, {routes[name].get("address", "") for name in lost})
    if not kept:
        _keep_edited(settings.inventory)
        write(settings.inventory, f"{text}{SEAL}{_digest(text)}\n")
        say(f"wrote {settings.inventory}")
    for name, node in known.items():
        say(f"{name}: {node}")
    failed = _doctor_fails(context) if known and not kept else False
    if lost:
        for name, error in lost.items():
            say(f"{name}: {reasons[name]}", fg="yellow")
            for step in error.next_step.splitlines():
                say(f"  next: {step}", bold=True)
        written = "stays as it was" if kept else "has them as comments" if known else "lists all nodes, not checked"
        say(f"not read: {', '.join(lost)}; {settings.inventory} {written}", fg="yellow")
        options = [*(["--user", user] if user else []), *(["--ssh-key", str(ssh_key)] if ssh_key else [])]
        say(f"  next: {quote('sparkops', 'init', *options, *(addresses or ()))}", bold=True)
    elif not failed:
        running = any(node.fleet_name for node in known.values())
        say(f"  next: sparkops {'status' if running else 'recipes --fits, then sparkops up RECIPE'}", bold=True)
    if lost or failed:
        raise typer.Exit(1)


def _renamed(values: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
    return {names[name]: value for name, value in values.items()}


def _doctor_fails(context: typer.Context) -> bool:
    """Run doctor on the new inventory, and return whether it found a problem."""
    try:
        doctor(context)
    except typer.Exit as ended:
        return bool(ended.exit_code)
    return False


def _add_gateway(fleet: Fleet, node: str) -> None:
    """Add a gateway to an inventory. Raises UsageError if it has a gateway or lacks the node."""
    file = fleet.file
    fleet.node(node)
    if fleet.gateway:
        problem = f"{file}: gateway: the inventory has one, on {fleet.gateway.node}"
        raise UsageError(problem, next_step=f"To move it, change gateway.node, then: sparkops gateway rebuild {node}")
    text = files.text(file)
    line = f"gateway: {{node: {node}}}"
    added = f"{text}{'' if text.endswith(chr(10)) else chr(10)}{line}\n"
    try:
        _checked(file, added)
    except ConfigError:  # its end is no place for a key: a mapping in braces, the end of a document
        problem = f"{file}: gateway: cannot be added at the end"
        raise UsageError(problem, next_step=f"Add it with an editor: {line}") from None
    write(file, added)
    say(f"{file}: the gateway is on {node}")
    say("  next: sparkops up RECIPE", bold=True)


def _is_unedited(file: Path) -> bool:
    """Return whether an inventory is as init wrote it, or as it comes with the sources."""
    try:
        text, _, digest = files.text(file, errors="replace").rpartition(SEAL)
    except OSError:  # init did not write a pipe, a device or a directory
        return False
    return _digest(text) == digest.strip()


def _knows(file: Path, addresses: Collection[str]) -> bool:
    """Return whether an inventory has nodes of these addresses, which could not be read now: it says more of them."""
    try:
        return any(node.address in addresses for node in inventory.load(file).nodes.values())
    except ConfigError:
        return False


def _keep_edited(file: Path) -> None:
    """Copy an edited inventory to FILE.old, before another one replaces it."""
    if file.is_file() and not _is_unedited(file):
        old = file.with_name(f"{file.name}.old")
        write(old, files.text(file, errors="replace"))
        say(f"{old} is the inventory that was there")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _usable(ssh_key: Path, inventory_file: Path) -> str:
    """Return a key's path for the inventory, relative if it lies beside or below it. Raises UsageError."""
    file = ssh_key.expanduser().absolute()
    try:
        read_key(file)
        mode = file.stat().st_mode
    except UsageError as error:
        step = error.next_step or "Name a private key, such as ~/.ssh/id_ed25519."
        raise UsageError(f"--ssh-key: {error}", next_step=step) from None
    if mode & files.OTHERS:
        step = f"chmod 600 {quote(str(file))}"
        raise UsageError(f"--ssh-key: {file} is readable by other users", next_step=step)
    directory = inventory_file.absolute().parent
    return str(file.relative_to(directory) if file.is_relative_to(directory) else file)


def _routes(addresses: Sequence[str], named: Mapping[str, str]) -> Routes:
    """Return how each node is reached, by its name. `named` are settings of all nodes; USER@ADDRESS has its own."""
    if not addresses:
        return {"local": {"transport": "local"}}
    routes = dict[str, dict[str, str]]()
    for number, given in enumerate(addresses, 1):
        user, _, address = given.rpartition("@")
        own = {"user": user} if user else {}
        route = {"address": address, "user": getpass.getuser(), **configured(address), **named, **own}
        routes[f"spark-{number}"] = route
    return routes


def _draft(settings: Settings, routes: Routes) -> Fleet:
    """Return the fleet before its nodes are read. Raises UsageError for an invalid address."""
    try:
        return _checked(settings.inventory, discovery.inventory(routes, {}, {}))
    except ConfigError as error:  # its file and lines are gone, the command line is what the operator can correct
        problems = [re.sub(r"^.*?:\d+: ", "", line) for line in str(error).splitlines()]
        step = "Pass the host name or IP address of each node once; SSH takes a port from ~/.ssh/config."
        raise UsageError("\n".join(problems), next_step=step) from None


def _checked(file: Path, text: str) -> Fleet:
    """Return the fleet of an inventory that is not written yet, read from a file beside it. Raises ConfigError."""
    draft = file.with_name(f".{file.name}.new")
    write(draft, text)
    try:
        return inventory.load(draft).model_copy(update={"file": file})
    finally:
        draft.unlink()


def _discover(fleet: Fleet, *, yes: bool) -> tuple[dict[str, Discovered], dict[str, SparkopsError]]:
    """Return the facts of the readable nodes, and why the others cannot be read. Pins host keys after a question.

    A next step names no node of the inventory: there it will be a comment.
    """
    connector = Connector(fleet, patience_s=0.0)
    outcomes: dict[str, Discovered | SparkopsError] = {}
    for name, node in fleet.nodes.items():
        try:
            if node.transport == "ssh" and not pin(connector, name, yes=yes):
                step = "Compare the fingerprint on the node's own screen; `init --yes` pins it without a question."
                outcomes[name] = NotReady(name, "its host key is not pinned", next_step=step)
        except HostKeyRefused as error:
            error.next_step = f"If the node was reinstalled, remove its line from {connector.pins(name).file}."
            outcomes[name] = error
        except SparkopsError as error:
            outcomes[name] = error
    names = [name for name in fleet.nodes if name not in outcomes]
    outcomes |= on_each(names, lambda name: _read(connector, name), connector.cancel)
    known = _of_guards(
        fleet, {name: outcome for name in fleet.nodes if isinstance(outcome := outcomes[name], Discovered)}
    )
    return known, {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, SparkopsError)}


def _of_guards(fleet: Fleet, known: Mapping[str, Discovered]) -> dict[str, Discovered]:
    """Return the nodes with their names in a fleet that runs, and its leaders.

    Where Docker or a guard cannot be read, the node keeps the name of the draft; doctor reports why.
    """
    with closing(Reader(fleet, known)) as reader:
        reports = {name: reported(name, outcome) for name, outcome in reader.read().items()}
    named = dict(known)
    for name, report in reports.items():
        if isinstance(report, SparkopsError):
            say(f"{report}; its name in a fleet is unknown", fg="yellow")
        else:
            leaders = frozenset(leaders_of([report]).values())
            named[name] = replace(known[name], fleet_name=report.fleet_name, leaders=leaders)
    return named


def _read(connector: Connector, name: str) -> Discovered:
    """Read a node. Raises NotReachable, NotReady, NodeError."""
    node = connector.node(name)
    try:
        return Discovered(
            host.parse(node.run(host.MEMORY).stdout),
            facts.parse_machine(node.run(facts.machine_query()).stdout),
            parse_fabric(node.run(fabric_query()).stdout),
            discovery.parse(node.run(discovery.query()).stdout),
        )
    except ValueError as error:
        raise NotReady(name, f"unexpected output of its shell: {error}") from None
    finally:
        node.close()
