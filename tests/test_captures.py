"""The captures in docs/captures: SVG that loads nothing from the network."""

from __future__ import annotations

import html
import re

import pytest

from tests.lab.captures import APPEAR, DOCS, animated, svg

RED = "\x1b[31munreachable\x1b[0m\r\n"


def test_a_capture_keeps_text_and_colors_and_names_no_font_of_the_network() -> None:
    drawn = svg("status", f"$ sparkops status\n{RED}")

    assert "unreachable" in drawn
    assert "sparkops&#160;status" in drawn
    assert "fill: #cc555a" in drawn  # red of rich's terminal theme
    assert "@font-face" not in drawn


def test_each_line_of_a_recording_appears_in_its_second() -> None:
    moved = animated(svg("swap", "one\ntwo\n"), [0.0, 12.5])

    appearances = re.findall(r'-line-(\d+)\)" style="animation: appear 1ms ([\d.]+)s', moved)
    assert set(appearances) >= {("0", "0.0"), ("1", "12.5")}
    assert moved.count(APPEAR) == 1


def test_the_recording_of_a_swap_shows_its_end_and_no_failed_request() -> None:
    drawn = html.unescape((DOCS / "swap.svg").read_text()).replace("\xa0", " ")

    assert "animation: appear" in drawn
    assert "is active" in drawn
    assert re.search(r"\d+ answered, 0 failed", drawn)


@pytest.mark.parametrize("name", ["deploy", "status", "watch"])
def test_each_capture_shows_its_command(name: str) -> None:
    drawn = (DOCS / f"{name}.svg").read_text()

    assert f"sparkops&#160;{'status' if name == 'watch' else name}" in drawn
    assert "@font-face" not in drawn
