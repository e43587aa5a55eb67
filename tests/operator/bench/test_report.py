"""The page of runs: one file that fetches nothing, and in which no name leaves its place."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from sparkops.operator.bench.report import page
from sparkops.operator.bench.runs import FIGURES, Point
from tests.operator.bench.values import point, run

HOSTILE = "<script>alert(1)</script>\"'>&<img src=http://x onerror=y>"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


def tags(text: str) -> Tags:
    parser = Tags()
    parser.feed(text)
    return parser


def test_it_has_a_plot_of_each_figure_and_fetches_nothing() -> None:
    text = page([run(point(), point(8, output_throughput=600.5)), run(release="chat-2")])
    plots = re.findall(r"<svg.*?</svg>", text)

    assert len(plots) == len(FIGURES)
    assert all(ElementTree.fromstring(plot) is not None for plot in plots)
    assert "chat-1, concurrency 8: 600.5" in text
    assert not tags(text).names & {"script", "link", "img", "iframe", "object", "base"}
    assert not tags(text).attributes & {"src", "href", "srcset", "action"}
    assert "http" not in text.replace("http-equiv", "")
    assert "default-src 'none'" in text


@pytest.mark.parametrize("key", ["service", "release", "node", "image", "model", "revision", "started"])
def test_a_hostile_text_stays_text(key: str) -> None:
    plain, hostile = tags(page([run()])), tags(page([run(**{key: HOSTILE})]))

    assert (hostile.names, hostile.attributes) == (plain.names, plain.attributes)


def test_the_tools_version_and_a_figure_that_is_none_are_text_too() -> None:
    text = page([run(point(completed=HOSTILE, output_throughput=HOSTILE), tool={"name": HOSTILE})])

    assert "<script" not in text
    assert "<img" not in text


def test_a_run_without_a_point_has_empty_plots() -> None:
    text = page([run(Point(concurrency=1, requests=8))])

    assert "not complete" in text
    assert "<circle" not in text


def test_figures_that_are_no_numbers_are_not_drawn() -> None:
    assert (
        "nan" not in page([run(point(output_throughput=float("nan"), median_ttft_ms=float("inf")))]).split("<h2>F")[1]
    )
