"""`sparkops ui` of real nodes in Chromium, at three widths, while a release is swapped under load."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from sparkops.swap.model import PHASES, Mode
from tests.lab.browser.chromium import Browser, browser
from tests.real.program import Ran, Running
from tests.real.service import Service, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.timeout(1800)]

WIDTHS = (400, 900, 1600)
ROW = "document.querySelector('#nodes tbody tr')"
NOW = "(document.querySelector('.phases [aria-current=step]') || {}).textContent || ''"
WIDE = "document.documentElement.scrollWidth"
MAIN = "document.querySelector('main').innerText"
ENDED = "document.querySelector('#ended').innerText.startsWith('sparkops ui has ended')"


@contextmanager
def page_of(running: Running) -> Iterator[str]:
    """The address of a page that is served meanwhile, and no longer."""
    assert running.stdout
    address = running.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", address), address
    yield address
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "Ctrl-C to quit\n")
    with pytest.raises(requests.ConnectionError):
        requests.get(address, timeout=10)


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[dict[int, Browser]]:
    """A browser of each width."""
    with ExitStack() as stack:
        opened = {width: stack.enter_context(browser(scratch(tmp_path, width))) for width in WIDTHS}
        for width, window in opened.items():
            window.sized(width, dark=width == WIDTHS[0])
        yield opened


def scratch(home: Path, width: int) -> Path:
    (place := home / str(width)).mkdir()
    return place


def shown(address: str) -> Any:
    """What the page of this address asks for."""
    base, token = address.split("/?token=")
    headers = {"Authorization": f"Bearer {token}"}
    reply = requests.get(f"{base}/status.json", headers=headers, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with the path to it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield path, value
        return
    for key, item in items:
        yield from leaves(item, f"{path}.{key}")


def texts(status: Any) -> dict[str, Any]:
    """All that is no figure, of the kind that each look reads anew."""
    return {path: item for path, item in leaves(status) if isinstance(item, (bool, str)) or item is None}


def watch(windows: dict[int, Browser], seen: dict[int, list[str]]) -> bool:
    """Note the phase that each page shows, where it is another one than before. Returns whether each has shown one."""
    for width, window in windows.items():
        phase = str(window.run(NOW))
        if phase and phase not in seen[width][-1:]:
            seen[width].append(phase)
    return all(seen.values())


def test_a_swap_under_load_is_watched_from_its_start_to_its_end(service: Service, windows: dict[int, Browser]) -> None:
    ran: list[Ran] = []
    seen: dict[int, list[str]] = {width: [] for width in WIDTHS}
    changes = {"swap__bake_s": "8", "START_S": "6"}
    deploy = threading.Thread(target=lambda: ran.append(service.deploy("--node", "node-1", **changes)))
    with service.cli.start("ui") as running, page_of(running) as address, service.load() as load:
        for window in windows.values():
            window.open(address)
        for window in windows.values():
            window.wait(ROW)
        load.wait_for(20)
        with service.cli.start("ui") as other, page_of(other) as second:
            assert second != address
            assert texts(shown(second)["status"]) == texts(shown(address)["status"])
            deploy.start()
            wait_for(lambda: watch(windows, seen), pause_s=0)
        while deploy.is_alive():
            watch(windows, seen)
        for width, window in windows.items():
            window.wait("!document.querySelector('.phases')")
            assert window.run(WIDE) == width
        wait_for(lambda: len(service.running()) == 1)
        wait_for(lambda: texts(shown(address)["status"]) == texts(service.cli("status", "--gpu", "--json").json))
        report = load.report()
        read = {width: str(window.run(MAIN)) for width, window in windows.items()}
        console = [line for window in windows.values() for line in window.console()]

    for window in windows.values():
        window.wait(ENDED)
    print(report, seen)
    assert report.clean, report
    assert (ran[0].code, ran[0].json["mode"]) == (0, "across"), ran[0].err
    order = [phase.value for phase in PHASES[Mode.ACROSS]]
    for width, phases in seen.items():
        assert phases == sorted(phases, key=order.index), (width, phases)
        assert len(phases) >= 3, (width, phases)  # a page is refreshed every 2 s
    for text in read.values():
        for word in ("node-1", "node-2", service.name, str(ran[0].json["release"]), service.url):
            assert word in text
    assert console == []
