"""The verb ui: a page on this machine, from the same readings as `status --watch`."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from sparkops import __version__
from sparkops.config.shipped import OWN, known_recipes
from sparkops.errors import Interrupted, SparkopsError, UsageError
from sparkops.operator.cli.options import Settings, whole
from sparkops.operator.cli.status import fleet_reader
from sparkops.operator.cli.status_output import joined_status, places
from sparkops.operator.cli.terminal import say, visible, without_credentials
from sparkops.operator.status.hour import READ_S, Hour, HourReader
from sparkops.operator.status.page.feed import PAUSE_S, Feed
from sparkops.operator.status.page.server import Site, serve
from sparkops.operator.status.picture import Status
from sparkops.swap.model import PHASES

PLAN_S = 600.0
"""Seconds for one plan: for new inputs the engine builds its configuration."""
PLAN_CHARACTERS = 200_000
"""Characters of a plan that are shown."""


def ui(
    context: typer.Context,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            parser=whole(0, 65535),
            metavar="PORT",
            show_default=False,
            help="Port to listen on; default: a free one",
        ),
    ] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser")] = False,
) -> None:
    """Show the fleet on a page in the browser

    Nodes, services, swaps, findings and the last hour, refreshed every 2 s while a page is open. Read only, and only
    on this machine: the address contains a token. Ctrl-C ends it.

    Example: sparkops ui --open
    """
    settings: Settings = context.obj
    names, gateway = places(settings)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with closing(fleet_reader(settings, gpus=True)) as reader:
            samples, plans = Samples(HourReader(lambda: reader.nodes)), Plans(settings)
            feed = Feed(lambda: picture(joined_status(names, gateway, reader.read()), samples.newest, settings))
            with closing(plans), _served(Site(feed, recipes, plans.text), port) as site:
                samples.start(feed)
                typer.echo(site.address)  # `data` would hide the token
                say("Ctrl-C to quit")
                if open_ and not webbrowser.open(site.address):
                    say("--open: this machine has no browser; open the address in one", fg="yellow")
                feed.run()
    except (KeyboardInterrupt, Interrupted):
        return  # Ctrl-C is no error, as of `status --watch`
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _served(site: Site, port: int) -> Iterator[Site]:
    """Serve while the context lasts. Raises UsageError for a port that is taken or not allowed."""
    with ExitStack() as stack:
        try:
            stack.enter_context(serve(site, port))
        except OSError as error:
            step = "Pass another one, or none for a free one."
            raise UsageError(f"--port {port}: {error.strerror}", next_step=step) from None
        yield site


def picture(status: Status, hour: Hour, settings: Settings) -> dict[str, Any]:
    """Return what the page shows: the JSON of `status --gpu --json`, the samples by service, and what explains them."""
    shown = {
        "status": asdict(status),
        "hour": {service: [*map(asdict, samples)] for service, samples in hour.items()},
        "phases": {mode.value: [phase.value for phase in phases] for mode, phases in PHASES.items()},
        "read_at": time.time(),
        "every_s": PAUSE_S,
        "inventory": str(settings.inventory),
        "version": __version__,
    }
    return dict(without_credentials(shown))


@dataclass
class Samples:
    """The samples of the guards, read by a thread of their own: a guard that does not reply delays no picture."""

    reader: HourReader
    newest: Hour = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def start(self, feed: Feed) -> None:
        """Read them every READ_S while a page asks, until the program ends."""
        threading.Thread(target=self._run, args=(feed,), name="samples", daemon=True).start()

    def _run(self, feed: Feed) -> None:
        while feed.waits():
            with suppress(SparkopsError):
                self.newest = self.reader.read()
            self.over.wait(READ_S if self.reader.nodes() else PAUSE_S)


def recipes() -> list[str]:
    """Return the names of the recipes, those of ./recipes first."""
    return sorted((known := known_recipes()), key=lambda name: (not known[name].is_relative_to(OWN), name))


@dataclass
class Plans:
    """Runs `sparkops plan RECIPE`, one at a time."""

    settings: Settings
    running: subprocess.Popen[str] | None = None
    alone: threading.Lock = field(default_factory=threading.Lock)

    def text(self, recipe: str) -> str:
        """Return what `sparkops plan RECIPE` prints; why not, where another one runs."""
        if not self.alone.acquire(blocking=False):
            return "Another plan is in progress; retry when it has ended."
        try:
            return self._printed(recipe)
        finally:
            self.alone.release()

    def _printed(self, recipe: str) -> str:
        command = (sys.executable, "-P", "-m", "sparkops", "--no-color", "-i", str(self.settings.inventory), "plan")
        pipe, merged = subprocess.PIPE, subprocess.STDOUT
        with subprocess.Popen(
            (*command, "--", recipe), text=True, stdin=subprocess.DEVNULL, stdout=pipe, stderr=merged
        ) as ran:
            self.running = ran
            try:
                printed, _ = ran.communicate(timeout=PLAN_S)
            except subprocess.TimeoutExpired:
                ran.kill()
                return f"no plan within {PLAN_S:g} s"
            finally:
                self.running = None
        return visible(printed[:PLAN_CHARACTERS])

    def close(self) -> None:
        """End the plan that runs."""
        if running := self.running:
            running.terminate()
