"""The verb node login."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparkops.operator.build.images import login
from sparkops.operator.cli.named import load_fleet, read_token
from sparkops.operator.cli.options import NODES
from sparkops.operator.cli.terminal import say
from sparkops.operator.fleet.connected import connect


def log_in(
    context: typer.Context,
    registry: Annotated[str, typer.Argument(metavar="REGISTRY", help="Host of the registry; docker.io for Docker Hub")],
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Name of the user at the registry")],
    password_file: Annotated[
        Path, typer.Option("--password-file", metavar="FILE", help="File with password or token, mode 600")
    ],
    node: NODES = None,
) -> None:
    """Log in to a registry on the nodes

    Each node pulls with the credentials of its SSH user, and keeps them in ~/.docker/config.json, or in the credential
    store that is set there. The password goes through the encrypted connection into `docker login`.

    To log out: `docker logout REGISTRY` on the node.

    Example: sparkops node login ghcr.io --user ann --password-file token.txt
    """
    fleet = load_fleet(context.obj)
    password = read_token(password_file)
    with connect(fleet, node or ()) as connected:
        login.log_in(connected, registry, user, password)
        for name in connected.members:
            say(f"{name}: logged in to {registry} as {user}", fg="green")
