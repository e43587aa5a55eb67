"""`python -m tests.lab.captures`: deploy, swap, `status` and `status --watch` on two nodes with the stand-in, as SVG.

The output is that of the programs; the deploys' comes through a pipe, so that no line of progress replaces another. The
lines of the swap appear in the picture in the second in which they were printed.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from sparkops.operator.demo.traffic.report import TrafficReport
from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.service import Service, with_gateway
from tests.terminal import terminal

DOCS = CHECKOUT / "docs/captures"
COLUMNS = 120
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
APPEAR = "@keyframes appear { from { opacity: 0 } }"
ERASED = "\x1b[2K"
SLOW = {"START_S": "25", "TOK_S": "40"}
"""A release that a person can watch loading, and that generates for a while."""


def main() -> int:
    """Deploy, look and capture. Returns 0."""
    nodes = RealFleet.up(2)
    home = nodes.home / "captures"
    home.mkdir(exist_ok=True)
    service = Service(with_gateway(nodes, home), nodes)
    service.begin()  # so that gateway and guards are those of this checkout
    service.sweep()
    save("deploy", deployed(service, "--node", "node-2"))
    with service.load(rate=4, streams=3) as load, second(service) as swap:
        lines = Lines(f"$ sparkops deploy {service.recipe} --node node-1")
        reader = threading.Thread(target=lines.read, args=(swap,))
        reader.start()
        save("watch", watched(service))
        reader.join()
        assert swap.wait() == 0, lines.texts
        load.wait_for(load.report().good + 10, 60)
        lines.add(*answered(load.report()))
        save("swap", "\n".join(lines.texts), list(lines.rows_s()))
        save("status", printed(service))
    return 0


class Lines:
    """Lines of a program, each with the seconds since the first one."""

    def __init__(self, first: str) -> None:
        self.began_s = time.monotonic()
        self.texts, self.times_s = [first], [0.0]

    def add(self, *texts: str) -> None:
        """Add lines that are printed now."""
        self.texts += texts
        self.times_s += [time.monotonic() - self.began_s] * len(texts)

    def rows_s(self) -> Iterator[float]:
        """Yield the seconds of each row of the terminal: long lines take several."""
        console = Console(width=COLUMNS, file=io.StringIO())
        for text, time_s in zip(self.texts, self.times_s, strict=True):
            yield from [time_s] * max(1, len(Text.from_ansi(text).wrap(console, COLUMNS)))

    def read(self, process: subprocess.Popen[str]) -> None:
        """Add what a program prints, stdout after stderr, until it ends."""
        for stream in (process.stderr, process.stdout):
            for line in stream or ():
                self.add(line.rstrip())


def answered(report: TrafficReport) -> tuple[str, ...]:
    """Return the lines that count the requests of a load."""
    failed = report.refusals + sum(report.failures.values())
    requests = f"{report.shorts} short requests and {report.streams} streams ran meanwhile through the gateway:"
    result = f"{report.good} answered, {failed} failed, longest time without an answer {report.longest_gap_s:.1f} s"
    return "", requests, result


def argv(service: Service, *options: str, name: str = "") -> list[str]:
    """Return the command of a deploy as an operator types it, with the settings of the tests."""
    return [word for word in service.argv(*options, name=name, **SLOW) if word != "--json"]


def deployed(service: Service, *options: str) -> str:
    """Deploy and return all that it prints. Raises AssertionError if it fails."""
    ran = service.cli(*argv(service, *options))
    assert ran.code == 0, ran.err
    return f"$ sparkops deploy {service.recipe} {' '.join(options)}\n{ran.err}{ran.out}"


def second(service: Service) -> subprocess.Popen[str]:
    """Begin to replace the release by another one on the other node."""
    return service.cli.start(*argv(service, "--node", "node-1", name="second"))


def watched(service: Service) -> str:
    """Return the last whole screen of `status --watch` while an engine loads."""
    options = ("--inventory", str(service.cli.inventory), "status", "--watch")
    with terminal(CHECKOUT, COLUMNS, options, service.cli.env) as shown:
        shown.until("loading")
        shown.until("Ctrl-C to quit", shown.shown.count("Ctrl-C to quit") + 1)
        shown.interrupt()
    frames = shown.shown.split(ERASED)
    frame = max((text for text in frames if "Ctrl-C to quit" in text), key=frames.index)
    return f"$ sparkops status --watch\n{frame[: frame.index('Ctrl-C to quit')]}Ctrl-C to quit"


def printed(service: Service) -> str:
    """Return what `status` prints on a terminal."""
    with terminal(CHECKOUT, COLUMNS, ("--inventory", str(service.cli.inventory), "status"), service.cli.env) as shown:
        shown.until_end()
    return f"$ sparkops status\n{shown.shown}"


def save(name: str, text: str, times_s: Sequence[float] = ()) -> None:
    """Write a terminal's text into docs/captures; with times its lines appear one after another."""
    DOCS.mkdir(exist_ok=True)
    (DOCS / f"{name}.svg").write_text(animated(svg(name, text), times_s) if times_s else svg(name, text))


def animated(drawn: str, times_s: Sequence[float]) -> str:
    """Let each line of a picture appear in its second; a reader without animations sees all of them."""

    def later(line: re.Match[str]) -> str:
        return f'{line[0]} style="animation: appear 1ms {times_s[min(int(line[1]), len(times_s) - 1)]:.1f}s backwards"'

    moved = re.sub(r'clip-path="url\(#[\w-]+-line-(\d+)\)"', later, drawn)
    return moved.replace("<style>", f"<style>\n    {APPEAR}", 1)


def svg(name: str, text: str) -> str:
    """Return a terminal's text as SVG, without the font that rich would load from the network."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text.replace("\r\n", "\n").replace("\r", "")))
    return FONT.sub("", console.export_svg(title=f"sparkops {name}", unique_id=name))


if __name__ == "__main__":
    sys.exit(main())
