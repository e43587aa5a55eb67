"""A run of a benchmark as it is kept, and what two runs or a run and its recipe's figures say side by side. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sparkops import foreign
from sparkops.config.recipe import Expected
from sparkops.serving.startup.durations import spell

MAX_RUN = 2**16
"""Bytes of a run: templates/node/bench_runs.py refuses more."""
FIGURES: Mapping[str, str] = {
    "output_throughput": "output tok/s",
    "median_ttft_ms": "TTFT median ms",
    "p99_ttft_ms": "TTFT p99 ms",
    "median_tpot_ms": "TPOT median ms",
    "p99_itl_ms": "ITL p99 ms",
    "p99_e2el_ms": "request p99 ms",
}
"""Figures of the tool that are shown, by their names in its result."""
MS = 1000.0


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Point(_Part):
    """One concurrency: the tool's figures, once it has ended."""

    concurrency: int = Field(ge=1, le=4096)
    requests: int
    complete: bool = False
    result: dict[str, Any] = {}

    def figure(self, name: str) -> float | None:
        """Return a figure of the tool; None where it has none."""
        value = self.result.get(name)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


class Start(_Part):
    """The start of the release on the node: seconds to each stage, and GiB that the engine reported."""

    took_s: float
    stages: dict[str, float] = {}
    weights_gib: float | None = None
    cache_gib: float | None = None
    graphs_gib: float | None = None


class Run(_Part):
    """A run: what was measured, where, with what, and its points. `started`: UTC, as 20261130T005500Z."""

    format: Literal[1] = 1
    service: str
    release: str
    started: str
    node: str
    sparkops: str
    recipe: str
    engine: str
    image: str
    """ID of the image, sha256:..."""
    model: str
    revision: str | None = None
    model_path: str
    args: dict[str, Any] = {}
    """Arguments of the recipe for its engine."""
    via: Literal["gateway", "engine"]
    url: str
    input_tokens: int
    output_tokens: int
    requests: int | None = None
    seed: int
    tool: dict[str, str] = {}
    """Name and version of the package that measured."""
    clocks: tuple[dict[str, int], ...] = ()
    """SM clock and highest SM clock in MHz, and utilization, of each GPU at the beginning of the last measurement."""
    memory_total_gib: float | None = None
    memory_available_gib: float | None = None
    """Memory of the node before the first measurement."""
    start: Start | None = None
    points: tuple[Point, ...]

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.started}-{self.release}"

    @property
    def complete(self) -> bool:
        return all(point.complete for point in self.points)

    def text(self) -> str:
        """Return it as its file has it."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"

    def with_point(self, point: Point, **changes: Any) -> Run:
        """Return it with a point in place of that of the same concurrency."""
        points = tuple(point if one.concurrency == point.concurrency else one for one in self.points)
        return self.model_copy(update={"points": points, **changes})


def parse(text: str) -> Run:
    """Parse the file of a run. Raises ValueError for other text."""
    if len(text.encode()) > MAX_RUN:
        raise ValueError(f"expected a run of up to {MAX_RUN} bytes, got {len(text.encode())}")
    try:
        return Run.model_validate(foreign.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "run"
        raise ValueError(f"{where}: {first['msg']}, expected a run of `sparkops bench`") from None


def kept(printed: str) -> list[Run]:
    """Parse what a guard prints of its runs, oldest first; those of another form are left out. Raises ValueError."""
    services = foreign.loads((printed.splitlines() or [""])[-1])
    if not isinstance(services, dict) or not all(isinstance(files, dict) for files in services.values()):
        raise ValueError(f"unexpected runs: {printed[:200]!r}")
    found = list[Run]()
    for text in (text for files in services.values() for text in files.values() if isinstance(text, str)):
        try:
            found.append(parse(text))
        except ValueError:  # of a later version
            continue
    return sorted(found, key=lambda run: run.started)


def newest(runs: Iterable[Run], named: str) -> Run | None:
    """Return the newest run of a name or a release, one that is complete before others; None without one."""
    found = [run for run in runs if named in (run.name, run.release)]
    return max(found, key=lambda run: (run.complete, run.started), default=None)


def unfinished(runs: Iterable[Run], service: str, release: str) -> Run | None:
    """Return the newest run of a release if it was cut; None without one."""
    found = [run for run in runs if (run.service, run.release) == (service, release)]
    last = max(found, key=lambda run: run.started, default=None)
    return last if last and not last.complete else None


class Compared(NamedTuple):
    """A figure of two runs; `ratio` is that of the second to the first, None where one has none or it is 0."""

    concurrency: int
    figure: str
    first: float | None
    second: float | None
    ratio: float | None


def ratio(first: float | None, second: float | None) -> float | None:
    return second / first if first and second is not None else None


def compare(first: Run, second: Run) -> Iterator[Compared]:
    """Yield each figure of the concurrencies that either run has measured."""
    points = [{point.concurrency: point for point in run.points if point.complete} for run in (first, second)]
    for concurrency in sorted({*points[0], *points[1]}):
        for name in FIGURES:
            values = [found[concurrency].figure(name) if concurrency in found else None for found in points]
            yield Compared(concurrency, name, values[0], values[1], ratio(values[0], values[1]))


ALIKE = ("input_tokens", "output_tokens", "requests", "via", "node", "tool")


def differences(first: Run, second: Run) -> list[str]:
    """Return what differs between two runs besides the release, so that their figures do not compare directly."""
    return [
        f"{name}: {_shown(getattr(first, name))} and {_shown(getattr(second, name))}"
        for name in ALIKE
        if getattr(first, name) != getattr(second, name)
    ]


def _shown(value: object) -> str:
    return " ".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def against_recipe(run: Run, expected: Expected | None) -> list[tuple[str, float, float]]:
    """Return (figure, measured, expected) of a recipe's figures: those of one stream, and of the start."""
    one = next((point for point in run.points if point.concurrency == 1 and point.complete), None)
    tpot_ms, ttft_ms = (one.figure(f"median_{name}_ms") if one else None for name in ("tpot", "ttft"))
    measured = {
        "tok_s": MS / tpot_ms if tpot_ms else None,
        "ttft_s": ttft_ms / MS if ttft_ms is not None else None,
        "cold_start_s": run.start.took_s if run.start else None,
    }
    stated = expected.model_dump() if expected else {}
    return [(name, value, stated[name]) for name, value in measured.items() if value is not None and stated.get(name)]


def table(run: Run) -> list[list[str]]:
    """Return the rows of a run: its points with the tool's figures."""
    head = ["CONCURRENCY", "REQUESTS", *(title.upper() for title in FIGURES.values())]
    return [head, *(_row(point) for point in run.points)]


def _row(point: Point) -> list[str]:
    if not point.complete:
        return [str(point.concurrency), "not complete", *("-" for _ in FIGURES)]
    failed = point.figure("failed") or 0
    requests = f"{point.result.get('completed')}" + (f", {failed:g} failed" if failed else "")
    return [str(point.concurrency), requests, *(shown(point.figure(name)) for name in FIGURES)]


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def facts(run: Run) -> list[str]:
    """Return what was measured, in lines."""
    tool = " ".join(run.tool.values()) or "the tool of the image"
    lines = [
        f"{run.service}: {run.release} on {run.node}, {run.started}, through the {run.via}",
        f"image {run.image}, model {run.model}" + (f" at {run.revision}" if run.revision else ""),
        f"{tool}: {run.input_tokens} tokens in, {run.output_tokens} out, seed {run.seed}",
    ]
    if run.start:
        sizes = {"weights": run.start.weights_gib, "KV cache": run.start.cache_gib, "graphs": run.start.graphs_gib}
        memory = "".join(f", {name} {size:.1f} GiB" for name, size in sizes.items() if size is not None)
        lines.append(f"start {spell(run.start.took_s)}{memory}")
    if run.memory_available_gib is not None:
        lines.append(f"memory {run.memory_available_gib:.1f} of {run.memory_total_gib or 0:.1f} GiB available")
    for gpu in run.clocks:
        lines.append(f"GPU at {gpu.get('sm_mhz')} of {gpu.get('max_mhz')} MHz")
    return lines


def verified(run: Run) -> str:
    """Return the text for `verified` of the recipe, as its key and a block of YAML."""
    day = f"{run.started[:4]}-{run.started[4:6]}-{run.started[6:8]}"
    lines = [
        f"{day}, sparkops bench {run.service}: release {run.release} on {run.node}, through the {run.via}.",
        *(f"{line}." for line in facts(run)[1:]),
    ]
    for point in run.points:
        if point.complete:
            figures = (f"{title} {shown(point.figure(name))}" for name, title in FIGURES.items())
            lines.append(f"Concurrency {point.concurrency}: {', '.join(figures)}.")
    if not run.complete:
        lines.append("The run is not complete.")
    return "\n".join(["verified: |", *(f"  {foreign.one_line(line)}" for line in lines)])


def listed(runs: Sequence[Run]) -> list[list[str]]:
    """Return the rows of `bench --list`."""
    rows = [["SERVICE", "RUN", "NODE", "VIA", "CONCURRENCY", "STATE"]]
    for run in runs:
        concurrencies = ",".join(str(point.concurrency) for point in run.points)
        state = "complete" if run.complete else "not complete"
        rows.append([run.service, run.name, run.node, run.via, concurrencies, state])
    return rows
