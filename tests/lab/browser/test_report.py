"""The page of `sparkops bench --report` in Chromium without a network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkops.operator.bench.report import page
from sparkops.operator.bench.runs import FIGURES, shown
from tests.lab.browser.chromium import Browser, browser
from tests.operator.bench.values import point, run

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

RUNS = [
    run(
        *(point(streams, output_throughput=rate) for streams, rate in zip((1, 8, 32), rates, strict=True)), release=name
    )
    for name, rates in (("chat-1", (38.5, 210.0, 480.25)), ("chat-2", (41.0, 233.5, 512.0)))
]
OUTSIDE = """[...document.querySelectorAll('figure')].flatMap((figure) => {
  const box = figure.querySelector('svg').getBoundingClientRect();
  return [...figure.querySelectorAll('circle, text')].map((one) => one.getBoundingClientRect())
    .filter((one) => one.left < box.left || one.right > box.right || one.top < box.top || one.bottom > box.bottom);
}).length"""
FETCHED = "performance.getEntriesByType('resource').length"


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser without a network, at the page of two runs."""
    home = tmp_path_factory.mktemp("report")
    (file := home / "page.html").write_text(page(RUNS))
    with browser(home) as started:
        started.cdp("Network.enable")
        started.cdp(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )
        started.open(file.as_uri())
        yield started


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 900, 1600])
def test_two_runs_are_readable_without_a_network(offline: Browser, width: int, dark: bool) -> None:
    offline.sized(width, dark=dark)

    assert offline.run("document.querySelectorAll('figure svg circle').length") == len(FIGURES) * 6
    assert offline.run(OUTSIDE) == 0
    assert offline.run("document.documentElement.scrollWidth") == width
    assert offline.run(FETCHED) == 0
    assert offline.console() == []
    read = str(offline.run("document.body.innerText"))
    assert all(words in read for words in ("chat-1", "chat-2", shown(480.25), *FIGURES.values()))
