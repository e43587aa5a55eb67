"""One page of HTML with the figures of runs: plots inside, no script, and nothing that a browser would fetch. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import isfinite

from sparkops.operator.bench.runs import FIGURES, Run, facts, shown, table

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 420, 240, 60, 40, 16
COLORS = ("#1965b0", "#dc050c", "#4eb265", "#882e72")
"""Of the lines, in the order of the runs."""
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }
td, th { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd }
th { font-weight: 600 }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 1rem }
figure { margin: 0 } figcaption { font-weight: 600 } p { overflow-wrap: anywhere }
svg { max-width: 100%; height: auto } text { font-size: 12px; fill: currentColor }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #e8e8e8 } td, th { border-color: #444 } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(runs: Sequence[Run]) -> str:
    """Return the page of one run, or of several side by side."""
    title = escape("sparkops bench: " + ", ".join(run.name for run in runs))
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>",
        *(line for number, run in enumerate(runs) for line in _section(run, number)),
        '<h2>Figures by concurrency</h2><div class="plots">',
        *(_plot(runs, name, label) for name, label in FIGURES.items()),
        "</div></body></html>",
    ]
    return "\n".join(lines) + "\n"


def _section(run: Run, number: int) -> Iterator[str]:
    head, *rows = table(run)
    color = COLORS[number % len(COLORS)]
    yield f'<h2><span style="color:{color}">&#9632;</span> {escape(run.release)}</h2>'
    yield "<p>" + "<br>".join(escape(line) for line in facts(run)) + "</p>"
    yield f"<table><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
    yield "</table>"


def _plot(runs: Sequence[Run], name: str, label: str) -> str:
    """Return one figure as SVG: a line for each run, concurrencies at equal distances."""
    series = [_values(run, name) for run in runs]
    places = sorted({concurrency for values in series for concurrency, _ in values})
    highest = max((value for values in series for _, value in values), default=0.0) or 1.0
    step = (WIDTH - LEFT - 20) / max(len(places) - 1, 1)

    def at(concurrency: int, value: float) -> tuple[float, float]:
        across = LEFT + step * places.index(concurrency)
        return across, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * max(value, 0.0) / highest

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">']
    parts.append(f"<title>{escape(label)} by concurrency</title>")
    parts.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - 10}" fill="none" stroke="currentColor"/>')
    for share in (0.0, 0.5, 1.0):
        down = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share
        parts.append(f'<text x="{LEFT - 6}" y="{down + 4:.1f}" text-anchor="end">{shown(highest * share)}</text>')
    for place in places:
        parts.append(f'<text x="{at(place, 0)[0]:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{place}</text>')
    for number, values in enumerate(series):
        color = COLORS[number % len(COLORS)]
        dots = [at(concurrency, value) for concurrency, value in values]
        line = " ".join(f"{across:.1f},{down:.1f}" for across, down in dots)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        for (across, down), (concurrency, value) in zip(dots, values, strict=True):
            told = escape(f"{runs[number].release}, concurrency {concurrency}: {value}")
            parts.append(
                f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" fill="{color}"><title>{told}</title></circle>'
            )
    parts.append("</svg>")
    return f"<figure><figcaption>{escape(label)}</figcaption>{''.join(parts)}</figure>"


def _values(run: Run, name: str) -> list[tuple[int, float]]:
    """Return (concurrency, figure) of the complete points that have it."""
    found = ((point.concurrency, point.figure(name)) for point in run.points if point.complete)
    return sorted((concurrency, value) for concurrency, value in found if value is not None and isfinite(value))
