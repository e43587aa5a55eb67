"""The page of `sparkops ui` in Chromium: three widths, light and dark, 16 nodes, hostile names, and keys alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sparkops.operator.status.page.feed import Feed
from sparkops.operator.status.page.server import Site, serve
from sparkops.operator.status.picture import Health, Status
from sparkops.swap.model import PHASES, Mode
from tests.lab.browser.chromium import Browser, browser
from tests.operator.status.page.pictures import HOSTILE, SWAPPING, engine, fleet, hostile, shown

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

WIDTHS = (400, 900, 1600)
TAB, LEFT, ENTER, ESCAPE = "\ue004", "\ue012", "\ue007", "\ue00c"
CONTRAST = """(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const back = (element) => {
    for (; element; element = element.parentElement) {
      const color = parts(getComputedStyle(element).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest("svg, option")) continue;
    const [a, b] = [light(parts(getComputedStyle(element).color)), light(back(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${element.textContent.slice(0, 30)}: ${ratio.toFixed(1)}`);
  }
  return low;
})()"""
"""Texts with less contrast than WCAG 2.2 AA asks for, 4.5 to 1."""


@dataclass
class Fleet:
    """A fleet that the page watches: `status` may change."""

    status: Status = field(default_factory=fleet)

    def __post_init__(self) -> None:
        self.feed = Feed(lambda: shown(self.status), pause_s=0.1)

    @contextmanager
    def served(self) -> Iterator[Site]:
        """Serve its page while the context lasts."""
        reading = threading.Thread(target=self.feed.run)
        reading.start()
        try:
            with serve(
                site := Site(self.feed, lambda: ["122b-autoround", *HOSTILE], lambda recipe: f"plan of {recipe}")
            ):
                yield site
        finally:
            self.feed.close()
            reading.join()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture
def page(chromium: Browser) -> Iterator[Browser]:
    """The browser; no test leaves a message in it, except that the server of the page has ended."""
    chromium.open("about:blank")
    chromium.console()
    yield chromium
    assert [message for message in chromium.console() if "net::ERR_" not in message] == []


def open_page(page: Browser, site: Site, width: int = 1600, *, dark: bool = False) -> None:
    page.sized(width, dark=dark)
    page.open(site.address)
    page.wait("document.querySelector('#nodes tbody tr')")


def text(page: Browser, selector: str = "main") -> str:
    return str(page.run(f"document.querySelector({json.dumps(selector)}).innerText"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_sixteen_nodes_are_readable_at_each_width(page: Browser, width: int, dark: bool) -> None:
    with Fleet().served() as site:
        open_page(page, site, width, dark=dark)
        read = text(page)
        wide = page.run("document.documentElement.scrollWidth")
        cut = page.run(
            "[...document.querySelectorAll('#nodes bdi, #nodes .state, .phases li, figcaption b')]"
            ".map((one) => one.getBoundingClientRect()).filter((box) => !box.width || box.right > innerWidth).length"
        )
        low = page.run(CONTRAST)
        background = page.run("getComputedStyle(document.body).backgroundColor")

    assert [number for number in range(1, 17) if f"spark-{number}" not in read] == []
    assert (wide, cut, low) == (width, 0, [])
    assert background == ("rgb(14, 17, 20)" if dark else "rgb(245, 246, 247)")


def test_the_page_shows_what_the_picture_has(page: Browser) -> None:
    watched = Fleet()
    with watched.served() as site:
        open_page(page, site)
        read, title = text(page), page.run("document.title")

    for node in watched.status.nodes:
        assert node.name in read
        for figure in (
            node.memory and f"{node.memory.available_gib} of 119.7 GiB",
            node.error,
            node.next_step,
            node.cordon,
        ):
            assert not figure or figure in read
    for service in watched.status.services:
        assert service.name in read
        assert not service.url or service.url in read
        assert [event for event in service.events if event not in read] == []
        assert [
            rank.progress for item in service.replicas for rank in item.ranks if (rank.progress or "") not in read
        ] == []
        assert [item.release for item in service.replicas if item.release not in read] == []
    for finding in watched.status.findings:
        assert (finding.code in read, finding.detail in read, finding.next_step in read) == (True, True, True)
    assert title.startswith("2 of 2 services healthy, 1 swap in progress, 3 problems")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_hostile_name_cannot_leave_its_place(page: Browser, width: int) -> None:
    with Fleet(hostile()).served() as site:
        open_page(page, site, width)
        page.wait("document.querySelectorAll('#recipe option').length > 1")
        read = text(page)
        made = page.run("document.querySelectorAll('main img, main script, main [onerror], main [onmouseover]').length")
        scripts = page.run("document.scripts.length")
        title, wide = page.run("document.title"), page.run("document.documentElement.scrollWidth")
        copied = page.run("[...document.querySelectorAll('[data-copy]')].map((one) => one.dataset.copy)")

    assert (made, scripts, wide) == (0, 1, width)
    assert "broken out" not in title.partition(" healthy")[0]
    assert title.startswith("0 of 5 services healthy")
    for name in HOSTILE[:3]:
        assert name in read
    assert "\\u202egnp.exe \\u001b[31m\\u2066" in read
    assert not {"\u202e", "\x1b"} & {*read, *title}
    assert [command for command in copied if set(command) & set("<>'\";$`")] == []


def test_a_swap_is_watched_from_its_start_to_its_end_without_losing_focus(page: Browser) -> None:
    watched = Fleet(fleet(2))
    phases = PHASES[Mode.ACROSS]
    with watched.served() as site:
        open_page(page, site, 900)
        page.run("document.querySelector('.service details').open = false")
        page.run("document.querySelector('.plot').focus()")
        for phase in phases:
            assert SWAPPING.swap
            swapping = replace(SWAPPING, swap=replace(SWAPPING.swap, phase=phase.value))
            watched.status = replace(watched.status, services=[swapping])
            words = json.dumps(phase.value)
            page.wait(f"document.querySelector('.phases [aria-current=step]')?.textContent === {words}")
            assert page.run("document.querySelectorAll('.phases .past').length") == phases.index(phase)
        ended = replace(SWAPPING, swap=None, replicas=[SWAPPING.replicas[0]])
        watched.status = replace(watched.status, services=[ended])
        page.wait("!document.querySelector('.phases')")

        assert page.run("document.activeElement.className") == "plot"
        assert page.run("document.querySelector('.service details').open") is False


def test_a_failed_container_is_shown_with_its_problem_and_next_step(page: Browser) -> None:
    problem = engine(
        "spark-1", health=Health.NONE, state="exited", exit_code=1, problem="out of memory", next_step="sparkops logs a"
    )
    failed = replace(SWAPPING, state="failed", swap=None, replicas=[replace(SWAPPING.replicas[0], ranks=[problem])])
    with Fleet(replace(fleet(1), services=[failed], findings=[])).served() as site:
        open_page(page, site, 400)
        read = text(page)

    assert "exited (1)" in read
    assert "out of memory" in read
    assert "qwen3.5-122b failed" in text_of(read)


def text_of(read: str) -> str:
    return " ".join(read.split())


def test_every_control_is_reached_by_keys_alone(page: Browser) -> None:
    with Fleet(fleet(5)).served() as site:
        open_page(page, site)
        page.wait("document.querySelectorAll('#recipe option').length > 1")
        reached = set()
        for _ in range(40):
            page.keys(TAB)
            reached.add(page.run("document.activeElement.tagName + '.' + document.activeElement.className"))
        page.run("document.querySelector('.plot').focus()")
        page.keys(LEFT)
        last = page.wait(
            "document.querySelector('.plot').closest('figure').querySelector('b').textContent.includes(' at ') "
            "&& document.querySelector('.plot').closest('figure').querySelector('b').textContent"
        )
        page.keys(*[LEFT] * 19)
        error = page.run("document.querySelectorAll('.service figure')[3].querySelector('b').textContent")
        page.keys(ESCAPE)
        page.run("document.querySelector('#plan button').focus()")
        page.keys(ENTER)
        page.wait("document.querySelector('#planned').textContent === 'plan of 122b-autoround'")

    assert {"BUTTON.", "DIV.plot", "SUMMARY.", "SELECT."} <= reached
    assert " at " in last
    assert error.split(" at ")[0] in ("0", "1", "3")


def test_every_plot_and_bar_has_a_name_for_who_does_not_see_it(page: Browser) -> None:
    with Fleet().served() as site:
        open_page(page, site)
        nameless = page.run(
            "[...document.querySelectorAll('[role=img], table, section, [role=group], article')]"
            ".filter((one) => !one.getAttribute('aria-label') && !one.getAttribute('aria-labelledby')).length"
        )
        labels = page.run("[...document.querySelectorAll('.plot')].map((one) => one.getAttribute('aria-label'))")

    assert nameless == 0
    assert any(label.startswith("Tokens/s of qwen3.5-122b, last hour: last ") for label in labels)


def test_the_token_leaves_the_address_and_a_reload_keeps_it(page: Browser) -> None:
    with Fleet().served() as site:
        open_page(page, site)
        assert page.run("location.search") == ""
        page.run("location.reload()")
        page.wait("document.querySelector('#nodes tbody tr')")

        page.open("about:blank")
        page.open(f"http://127.0.0.1:{site.port}/")
        page.wait("document.querySelector('#ended').innerText.startsWith('Open the address that')")
    page.console()  # the 403


def test_the_page_says_that_the_command_has_ended_and_keeps_the_last_picture(page: Browser) -> None:
    with ExitStack() as stack:
        site = stack.enter_context(Fleet().served())
        open_page(page, site)
        stack.close()
        page.wait(
            "document.querySelector('#ended').innerText.startsWith('sparkops ui has ended: this is the last picture')"
        )

    assert "spark-16" in text(page)


def test_two_pages_in_one_browser_do_not_disturb_each_other(page: Browser) -> None:
    with Fleet(fleet(1)).served() as one, Fleet(fleet(2)).served() as two:
        open_page(page, one)
        open_page(page, two)
        assert page.run("document.querySelectorAll('#nodes tbody tr').length") == 2
        open_page(page, one)
        assert page.run("document.querySelectorAll('#nodes tbody tr').length") == 1
        assert cookies(page) == ""


def cookies(page: Browser) -> Any:
    return page.run("document.cookie")
