"""Log in to a registry on the nodes, which pull with the credentials of the SSH user."""

from __future__ import annotations

from sparkops.command import Command
from sparkops.errors import CommandFailed, NodeError
from sparkops.node.docker.commands import docker
from sparkops.node.member import Member
from sparkops.operator.fleet.connected import Connected

TIMEOUT_S = 60.0


def command(registry: str, user: str, password: str) -> Command:
    """Return `docker login`, which reads the password from stdin, asks the registry and remembers it on the node."""
    argv = ("login", f"--username={user}", "--password-stdin", registry)
    return docker(*argv, stdin=password.encode(), timeout_s=TIMEOUT_S)


def log_in(connected: Connected, registry: str, user: str, password: str) -> None:
    """Log in on all connected nodes at once. Raises NodeError for a login that the registry refuses."""

    def work(member: Member) -> None:
        try:
            member.node.run(command(registry, user, password))
        except CommandFailed as failed:
            reason = failed.completed.last_lines.splitlines()[-1:] or ["no output"]
            problem = f"the login at {registry} failed: {reason[0]}"
            raise NodeError(
                member.name, problem, next_step="Check the registry, the user and the password."
            ) from failed

    connected.all(work)
