"""The verb bench."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from sparkops.command import quote
from sparkops.config.inventory import Fleet
from sparkops.errors import UsageError, further
from sparkops.names import did_you_mean
from sparkops.node.docker.commands import model_dir
from sparkops.node.member import Member
from sparkops.operator.bench import measure, report, runs, tool
from sparkops.operator.bench.measure import Target
from sparkops.operator.bench.runs import FIGURES, Run
from sparkops.operator.bench.tool import CONCURRENCIES, Load
from sparkops.operator.build.gateway.files import load_secrets
from sparkops.operator.cli.intents import leader_of
from sparkops.operator.cli.named import load_fleet
from sparkops.operator.cli.options import DRY_RUN, JSON, whole
from sparkops.operator.cli.terminal import data, data_json, say, table, write
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.fleet.connected import connect
from sparkops.operator.fleet.guards.leader import Leader

NAMES = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Service; with --show or --compare a release, a kept run or a file"),
]
DEFAULT = ",".join(map(str, CONCURRENCIES))
MOST_CONCURRENCY, MOST_POINTS, MOST_TOKENS = 1024, 16, 1_000_000


def concurrencies(text: str) -> str:
    """Check numbers of streams such as 1,8,32. Raises BadParameter."""
    words = text.split(",")
    right = all(word.isdecimal() and 1 <= int(word) <= MOST_CONCURRENCY for word in words)
    if not right or len(set(map(int, words))) != len(words) or len(words) > MOST_POINTS:
        expected = f"up to {MOST_POINTS} different numbers from 1 to {MOST_CONCURRENCY}, such as 1,8,32"
        raise typer.BadParameter(f"expected {expected}; got {text!r}")
    return text


def bench(
    context: typer.Context,
    names: NAMES = None,
    *,
    concurrency: Annotated[
        str, typer.Option("--concurrency", parser=concurrencies, metavar="N,N", help="Streams at once, in turn")
    ] = DEFAULT,
    input_tokens: Annotated[
        int, typer.Option(parser=whole(1, MOST_TOKENS), metavar="TOKENS", help="Length of a prompt")
    ] = Load.input_tokens,
    output_tokens: Annotated[
        int, typer.Option(parser=whole(1, MOST_TOKENS), metavar="TOKENS", help="Length of an answer")
    ] = Load.output_tokens,
    requests: Annotated[
        int | None,
        typer.Option(parser=whole(1, 100_000), metavar="N", help="Requests at each concurrency; default: 8 a stream"),
    ] = None,
    direct: Annotated[bool, typer.Option("--direct", help="Ask the engine itself, without the gateway")] = False,
    continue_: Annotated[bool, typer.Option("--continue", help="Finish the last run, if it was cut")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the runs that are kept")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print a kept run")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Print two runs side by side")] = False,
    page: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write an HTML page with plots to FILE")
    ] = None,
    verified: Annotated[bool, typer.Option("--verified", help="Print the text for `verified` of a recipe")] = False,
    dry_run: DRY_RUN = False,
    json: JSON = False,
) -> None:
    """Measure the speed of a service, and compare runs

    Runs the benchmark of the engine's own package in the image of the release that serves, on the node of rank 0 and
    without a GPU. The leader keeps the run, with image, model, arguments and the start of the release. A run that was
    cut is kept, too: --continue finishes it.

    Exit code 1 if the benchmark fails, 4 during a swap.

    Example: sparkops bench qwen3.5-122b --concurrency 1,8,32
    """
    modes = [flag for flag, given in (("--list", list_), ("--show", show), ("--compare", compare)) if given]
    named = list(names or ())
    settings = {
        "--concurrency": concurrency != DEFAULT,
        "--input-tokens": input_tokens != Load.input_tokens,
        "--output-tokens": output_tokens != Load.output_tokens,
        "--requests": requests is not None,
        "--direct": direct,
    }
    measured = [flag for flag, given in settings.items() if given]
    _check(named, modes, measured, continue_=continue_, dry_run=dry_run, verified=verified, page=page)
    if modes:
        fleet = load_fleet(context.obj) if list_ or not all(Path(name).is_file() for name in named) else None
        _show(fleet, named, modes[0], page, verified=verified, json=json)
        return
    load = Load(input_tokens, output_tokens, requests, int(time.time()))
    fleet, [service] = load_fleet(context.obj), named
    streams = [int(word) for word in concurrency.split(",")]
    with leader_of(fleet, service) as (operation, leader):
        active = measure.serving(leader, service)
        begun = _unfinished(operation, service, active.release) if continue_ else None
        direct = begun.via == "engine" if begun else direct
        key = next(iter(load_secrets(fleet).api_keys), "")
        target = measure.target(active, service, fleet.require_gateway(), key, direct=direct)
        member = operation.connected.member(target.node)
        run = begun or measure.new_run(member, target, service, load, streams)
        if dry_run:
            _show_commands(member, target, run, json=json)
            return
        run = _measured(operation, leader, member, target, run)
    _print([run], page, runs.against_recipe(run, target.recipe.expected), verified=verified, json=json)


def _check(
    named: Sequence[str],
    modes: Sequence[str],
    measured: Sequence[str],
    *,
    continue_: bool,
    dry_run: bool,
    verified: bool,
    page: Path | None,
) -> None:
    """Raise UsageError for options that do not go together, and for another number of names."""
    if len(modes) > 1:
        raise UsageError(f"{modes[0]}: not with {modes[1]}", next_step="sparkops bench --help")
    mode = modes[0] if modes else ""
    if (mode or continue_) and measured:
        why = "it measures nothing" if mode else "it has the settings of the run that it finishes"
        raise UsageError(f"{mode or '--continue'}: not with {measured[0]}: {why}")
    if mode and (continue_ or dry_run):
        raise UsageError(f"{mode}: not with {'--continue' if continue_ else '--dry-run'}: it measures nothing")
    if mode == "--list" and (verified or page):
        raise UsageError("--list: not with --verified or --report", next_step="sparkops bench --show RUN --report FILE")
    if mode == "--compare" and verified:
        raise UsageError("--compare: not with --verified", next_step="sparkops bench --show RUN --verified")
    expected = {"--list": range(2), "--show": range(1, 2), "--compare": range(2, 3)}.get(mode, range(1, 2))
    if len(named) not in expected:
        wanted = {"--list": "at most one SERVICE", "--show": "one RUN", "--compare": "two runs"}.get(
            mode, "one SERVICE"
        )
        problem = f"{mode or 'bench'}: expected {wanted}, got {len(named)} names"
        raise UsageError(problem, next_step="sparkops bench --list")


def _unfinished(operation: Operation, service: str, release: str) -> Run:
    """Return the last run of a release, which was cut. Raises UsageError without one."""
    found = runs.unfinished(measure.kept(operation.connected), service, release)
    if found is None:
        problem = f"--continue: the last run of {release} is complete, or none is kept"
        raise UsageError(problem, next_step=f"sparkops bench {service}")
    return found


def _measured(operation: Operation, leader: Leader, member: Member, target: Target, run: Run) -> Run:
    """Measure what is due of a run, kept on the leader after each concurrency."""
    at = operation.connected.member(operation.node)

    def same() -> bool:
        active = leader.state(run.service).journal.active
        return active is not None and active.release == run.release

    with further(f"sparkops bench --show {run.name} prints what was measured"):
        return measure.measure(member, target, run, lambda one: measure.keep(at, one), same, operation.report)


def _show_commands(member: Member, target: Target, run: Run, *, json: bool) -> None:
    """Print what a run would execute on the node: one container for each concurrency, and the tool in it."""
    due = [point.concurrency for point in run.points if not point.complete]
    container = quote(*tool.container(target.image, model_dir(member.config)))
    lines = {one: quote("python", "-m", *measure.argv(target, run, one)) for one in due}
    if json:
        data_json({"service": run.service, "release": run.release, "node": run.node, "commands": [*lines.values()]})
        return
    data(f"{run.release} on {run.node}, through the {run.via}: {target.url}")
    data(f"  $ {container}")
    for one, line in lines.items():
        data(f"  in it, concurrency {one}: {line}")


def _show(
    fleet: Fleet | None, named: Sequence[str], mode: str, page: Path | None, *, verified: bool, json: bool
) -> None:
    """Print kept runs; `fleet` keeps those that are no files."""
    found = list[Run]()
    if fleet:
        with connect(fleet, (), required=False) as connected:
            for name, error in connected.unreachable.items():
                say(f"skipping {name}: {error}", fg="yellow")
            found = measure.kept(connected)
    if mode == "--list":
        chosen = [run for run in found if not named or run.service == named[0]]
        if json:
            data_json({"runs": [{**run.model_dump(mode="json"), "name": run.name} for run in chosen]})
        else:
            data("\n".join(table(runs.listed(chosen))) if chosen else "no runs are kept")
        return
    chosen = [_chosen(name, found) for name in named]
    _print(chosen, page, [], verified=verified, json=json)


def _chosen(name: str, found: Sequence[Run]) -> Run:
    """Return the run of a file, else the kept one of a name or release. Raises UsageError."""
    file = Path(name)
    if file.is_file():
        try:
            with file.open("rb") as opened:
                return runs.parse(opened.read(runs.MAX_RUN + 1).decode())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"{file}:1: {reason}", next_step="sparkops bench --show RUN --json > FILE") from None
    run = runs.newest(found, name)
    if run is None:
        known = {known for run in found for known in (run.name, run.release)}
        step = f"{did_you_mean(name, known)}`sparkops bench --list` lists all."
        raise UsageError(f"no kept run and no file: {name}", next_step=step)
    return run


Rows = Sequence[tuple[str, float, float]]
"""Figure, measured and expected value."""


def _print(chosen: Sequence[Run], page: Path | None, expected: Rows, *, verified: bool, json: bool) -> None:
    """Print one run, or two side by side, and write the page."""
    if json and len(chosen) == 1:
        data_json(chosen[0].model_dump(mode="json"))
    elif json:
        compared = [row._asdict() for row in runs.compare(*chosen)]
        data_json({"runs": [run.name for run in chosen], "differences": runs.differences(*chosen), "figures": compared})
    elif verified:
        data(runs.verified(chosen[0]))
    elif len(chosen) == 1:
        data("\n".join([*runs.facts(chosen[0]), *table(runs.table(chosen[0]))]))
        if expected:
            data("\n".join(_expected_lines(expected)))
    else:
        data("\n".join(_compared_lines(*chosen)))
    for run in chosen:
        if not run.complete:
            say(f"{run.name} is not complete", fg="yellow")
    if page:
        write(page, report.page(chosen))
        say(f"wrote {page}")


def _expected_lines(rows: Rows) -> list[str]:
    cells = [(name, runs.shown(value), runs.shown(stated), f"{value / stated:.2f}") for name, value, stated in rows]
    return table([("EXPECTED BY THE RECIPE", "MEASURED", "EXPECTED", "RATIO"), *cells])


def _compared_lines(first: Run, second: Run) -> Iterable[str]:
    yield f"A  {first.name} on {first.node}"
    yield f"B  {second.name} on {second.node}"
    yield from (f"differs: {line}" for line in runs.differences(first, second))
    rows = list[tuple[str, ...]]()
    for row in runs.compare(first, second):
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
        rows.append((str(row.concurrency), FIGURES[row.figure], runs.shown(row.first), runs.shown(row.second), ratio))
    yield from table([("CONCURRENCY", "FIGURE", "A", "B", "B/A"), *rows])
