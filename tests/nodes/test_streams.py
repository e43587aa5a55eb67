"""Bytes from a command become text and lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkops.nodes.streams import KEEP, PIECES, Output, TooLong


def read(*chunks: bytes) -> tuple[str, list[str]]:
    """Text and lines of an output that came in these chunks."""
    lines: list[str] = []
    output = Output(lines.append)
    for chunk in chunks:
        output.feed(chunk)
    output.feed(b"", final=True)
    return output.text, lines


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([], []),
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a", b"b\nc", b"\n"], ["ab", "c"]),
        ([b"a\r\nb"], ["a", "b"]),
        ([b"\n\n"], ["", ""]),
        ([b"\xc3", b"\xbc\n"], ["ü"]),
        ([b"bad \xff byte\n"], ["bad \ufffd byte"]),
        ([b"cut \xc3"], ["cut \ufffd"]),
    ],
    ids=str,
)
def test_lines_are_whole_however_the_bytes_come(chunks: list[bytes], lines: list[str]) -> None:
    assert read(*chunks)[1] == lines


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_the_way_bytes_are_cut_changes_nothing(chunks: list[bytes]) -> None:
    assert read(*chunks) == read(b"".join(chunks))


def test_only_the_end_of_a_long_output_is_kept() -> None:
    text, lines = read(b"x" * KEEP, b"the end")

    assert (len(text), text[-8:]) == (KEEP, "xthe end")
    assert [len(line) for line in lines] == [KEEP]


def test_output_that_nobody_reads_by_line_is_kept_as_text() -> None:
    output = Output()
    output.feed(b"a\nb")
    output.feed(b"", final=True)

    assert output.text == "a\nb"


def test_an_answer_that_is_too_long_is_refused_not_cut() -> None:
    output = Output(answer=True)
    output.feed(b"x" * KEEP)

    with pytest.raises(TooLong, match=rf"^printed more than {KEEP} characters; stopped$"):
        output.feed(b"x")


def test_an_output_that_comes_in_single_characters_is_held_in_few_pieces() -> None:
    output = Output()
    for number in range(10 * PIECES):
        output.feed(b"%d" % (number % 10))

    assert len(output.parts) <= PIECES + 1
    assert output.text == "0123456789" * PIECES
