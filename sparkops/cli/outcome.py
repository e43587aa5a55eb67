"""The outcome of an intent as text, JSON and exit code."""

from __future__ import annotations

from sparkops.cli.terminal import data_json, say
from sparkops.errors import InPlaceFailed, NeedsOperator, SparkopsError
from sparkops.guard_client.ending import Ending, exit_code
from sparkops.guard_client.following import Accepted, Following

Outcome = Ending | Accepted | SparkopsError | None


def conclude(following: Following, accepted: Accepted, *, detach: bool, json: bool, wants_back: bool = False) -> None:
    """Follow an accepted intent to its end and print the result; with `detach` only how to follow it.

    Raises the error with the intent's exit code. `wants_back`: the return to the old release is a success.
    """
    service = following.service
    if detach:
        _show_accepted(service, accepted, json=json)
        return
    ending = following.until_end(accepted)
    code = exit_code(ending, wants_back=wants_back)
    if json:
        data_json({"service": service, **ending.as_json(), "exit_code": code})
    if code:
        raise _failure(service, ending, code)
    _show_success(service, ending)


def _show_success(service: str, ending: Ending, node: str = "") -> None:
    """Print the result of an intent that succeeded, and the seconds of its phases."""
    serves = f"{ending.release} serves" if ending.release else "no release serves"
    mode = f", mode {ending.mode}" if ending.mode else ""
    results = {"stopped": "stopped", "waiting": f"{ending.release} is active and waits for promotion{mode}"}
    result = results.get(ending.result, f"{ending.result}: {serves}{mode}")
    say(f"{f'{node}: ' if node else ''}{service}: {result}", fg="green")
    if ending.seconds:
        say("  " + " · ".join(f"{phase} {took:g} s" for phase, took in ending.seconds.items()), fg="green")
    if ending.cut:
        say(f"  {ending.cut} requests were cut at the end of the drain", fg="yellow")
    if ending.result == "waiting":
        say(f"  next: sparkops promote {service}, or: sparkops rollback {service}", bold=True)


def _show_accepted(service: str, accepted: Accepted, *, json: bool) -> None:
    """Print that an intent is accepted, and how to follow it."""
    say(f"{service}: accepted; the fleet continues without this client", fg="green")
    for command in ("follow", "cancel"):
        say(f"  next: sparkops {command} {service}", bold=True)
    if json:
        data_json({"service": service, "result": "accepted", "intent": accepted.intent or None})


def _failure(service: str, ending: Ending, code: int, node: str = "") -> SparkopsError:
    """Return the error of an intent that failed."""
    serves = f"{ending.release} serves" if ending.release else "no release serves"
    kinds = {InPlaceFailed.exit_code: InPlaceFailed, NeedsOperator.exit_code: NeedsOperator}
    problem = f"{f'{node}: ' if node else ''}{service}: {ending.result}: {ending.why}; {serves}"
    error = kinds.get(code, SparkopsError)(problem, next_step=ending.next_step or f"sparkops history {service}")
    error.exit_code = code
    return error
