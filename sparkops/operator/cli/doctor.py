"""The verb doctor."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from sparkops.errors import UsageError
from sparkops.operator.build.hub.pull import require_encrypted
from sparkops.operator.cli.named import load_fleet, read_token
from sparkops.operator.cli.options import ENDPOINT, JSON, NODES, TOKEN_FILE, YES
from sparkops.operator.cli.progress import progress
from sparkops.operator.cli.terminal import confirm, data, data_json, folded, say
from sparkops.operator.fleet.connected import Connected, connect
from sparkops.operator.status.doctor.bundle import MANIFEST, archive, collect, files
from sparkops.operator.status.doctor.diagnosis import Diagnosis, FixRow
from sparkops.operator.status.doctor.run import DoctorResult, HubLogin, diagnose, fix_all, fixes
from sparkops.operator.status.doctor.view import lines

PATIENCE_S = 0.0  # one attempt: doctor reports the present state


def doctor(
    context: typer.Context,
    node: NODES = None,
    fix: Annotated[bool, typer.Option("--fix", help="Run the safe fixes, after confirmation")] = False,
    yes: YES = False,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="FILE", help="Write a redacted tar.gz for a bug report, mode 0600"),
    ] = None,
    updates: Annotated[
        bool, typer.Option("--updates", help="Compare packages of the agents with Debian's archive")
    ] = False,
    token_file: TOKEN_FILE = None,
    endpoint: ENDPOINT = "",
    json: JSON = False,
) -> None:
    """Check nodes and their network

    Prints each finding with its reason and the next step. Exit code 1 if there is a problem.

    --fix starts a stopped guard or gateway, drops page cache, turns on NTP and writes a missing CDI spec. It stops and
    removes nothing.

    --updates reads the lists of Debian's archive on each node, some 10 MB, and names packages in guard and gateway that
    have a newer version, or differ between nodes. build.agent_packages of the inventory installs them anew.

    --bundle writes versions, findings, status, events and logs of the guards, and the evidence of the last failures.

    Example: sparkops doctor --fix
    """
    if yes and not fix:
        raise UsageError("--yes: no effect without --fix", next_step="sparkops doctor --fix --yes")
    login = HubLogin(read_token(token_file), endpoint)
    require_encrypted(login.token, endpoint)
    with connect(load_fleet(context.obj), node or (), patience_s=PATIENCE_S, required=False) as connected:
        result = _diagnose(connected, login, updates=updates)
        if fix and (rows := _fix(connected, result.diagnosis, yes=yes)):
            after = _diagnose(connected, login, updates=updates)
            result = DoctorResult(after.diagnosis.model_copy(update={"fixes": rows}), after.status)
        diagnosis, text = result.diagnosis, "\n".join(lines(result.diagnosis))
        if bundle:
            write_bundle(bundle, files({**collect(connected, result), "doctor.txt": text}))
    if json:
        data_json(diagnosis.model_dump(mode="json"))
    else:
        data(folded(text))
    if not diagnosis.ok:
        raise typer.Exit(1)


def _diagnose(connected: Connected, login: HubLogin, *, updates: bool) -> DoctorResult:
    with progress() as report:
        return diagnose(connected, report, login, updates=updates)


def write_bundle(file: Path, texts: dict[str, str]) -> None:
    """Write a new file with mode 0600 and print its contents list. Raises UsageError."""
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(archive(texts, time.time()))
    except OSError as error:
        step = "Name a new file, such as --bundle sparkops-bundle.tar.gz"
        raise UsageError(f"--bundle: {file} cannot be written: {error.strerror}", next_step=step) from None
    say(f"wrote {file}, mode 0600: it contains node names and addresses: review it before sending it", fg="green")
    say(texts[MANIFEST].rstrip())


def _fix(connected: Connected, diagnosis: Diagnosis, *, yes: bool) -> list[FixRow]:
    """Print the fixes, ask for confirmation and run them. Return the results."""
    due = [*fixes(diagnosis.findings, connected.fleet.nodes)]
    for fix in due:
        say(f"{fix.finding.node}: {fix.finding.code}: {fix.repair.words}")
    if not due:
        say("no finding has a safe fix")
    elif confirm(f"Run {len(due)} {'fix' if len(due) == 1 else 'fixes'}?", yes=yes):
        return fix_all(connected, due)
    return []
