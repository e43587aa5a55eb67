"""Reasons why a container does not work, with the next step. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparkops.docker.facts import Container
from sparkops.guard_client.service_state import ServiceState
from sparkops.status.observation import RankReport, ServiceReport
from sparkops.status.picture import Health
from sparkops.swap.trouble import NEXT

ENDED_WELL = {0, 137, 143}
"""Exit codes of a program that ended by itself, or by the SIGKILL or SIGTERM of `docker stop`."""


def progress(container: Container, states: Sequence[ServiceState]) -> str | None:
    """Return what the guard of a container waits for, as its leader reports it; None for nothing."""
    texts = (state.progress.get(container.node, {}).get(container.name) for state in states)
    return next((text for text in texts if text), None)


def of_rank(rank: RankReport, service: ServiceReport) -> tuple[str, str]:
    """Return the problem of a container and the next command; both empty if it works or was stopped."""
    if service.ended and not rank.container.running:
        return "", ""
    reported = _reported(rank.container, service.states)
    problem = reported.partition(NEXT)[0] or ("" if _replaced(rank, service) else _observed(rank))
    if not problem:
        return "", ""
    step = reported.partition(NEXT)[2]
    verb = "history" if service.states else "logs"
    return problem, step or f"sparkops {verb} {service.name}"


def _reported(container: Container, states: Sequence[ServiceState]) -> str:
    """Return why its last start failed, as its guard reports it; empty if it did not."""
    reports = (state.reports.get(container.node) for state in states)
    return next((text for report in reports if report and (text := report.engine(container.name).problem)), "")


def _replaced(rank: RankReport, service: ServiceReport) -> bool:
    """Return whether a container has ended while another release of its service works: its end is history.

    The gateway alone shows that too, while no guard can be asked.
    """
    if service.live is None or (service.led and not service.states):
        return False
    return rank not in service.live_ranks and not rank.container.running


def _observed(rank: RankReport) -> str:
    container = rank.container
    if container.oom_killed:
        return f"{container.name} was OOM-killed"
    if container.state == "restarting":
        return f"{container.name} is in a restart loop: {container.restarts} restarts, exit code {container.exit_code}"
    if not container.running:
        code = container.exit_code
        return "" if code in ENDED_WELL else f"{container.name} exited with code {code}"
    failing = rank.health is Health.FAILING
    return f"{container.name} runs, but /health does not answer" if failing else ""
