"""Bytes from a command become text and lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkops.command import Command
from sparkops.node.local import LocalNode
from sparkops.node.streams import KEEP, PIECES, LineStream, Output, SharedStream, TooLong
from tests.node.test_local import ends, wait_for
from tests.node.threads import no_thread_starts


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


PATIENCE_S = 60.0
IN_PAIRS = """\
import json, sys
while lines := [line for line in (sys.stdin.readline(), sys.stdin.readline()) if line]:
    for line in reversed(lines):
        request = json.loads(line)
        print(json.dumps({"id": request["id"], "for": request["word"]}), flush=True)
"""
ONCE = """\
import json, os, sys
request = json.loads(sys.stdin.readline())
print(json.dumps({"id": request["id"], "pid": os.getpid()}), flush=True)
sys.stdin.readline()
"""


@contextmanager
def shared(script: str) -> Iterator[SharedStream]:
    stream = SharedStream(LocalNode("n1"), Command((sys.executable, "-c", script)))
    yield stream
    stream.close()


def test_threads_that_share_a_stream_get_their_own_replies_in_any_order() -> None:
    with shared(IN_PAIRS) as stream, ThreadPoolExecutor(4) as threads:
        words = [f"word-{number}" for number in range(8)]
        replies = threads.map(lambda word: stream.request({"word": word}, PATIENCE_S), words)
        assert [reply["for"] for reply in replies] == words


def test_a_shared_stream_that_has_ended_is_started_again() -> None:
    with shared(ONCE) as stream:
        first = stream.request({}, PATIENCE_S)
        with pytest.raises(ConnectionResetError):
            stream.request({}, PATIENCE_S)
        assert stream.request({}, PATIENCE_S)["pid"] != first["pid"]


def test_a_shared_stream_that_hangs_is_ended_for_all_its_requests() -> None:
    with shared("import sys; sys.stdin.readline(); sys.stdin.read()") as stream, ThreadPoolExecutor(1) as threads:
        other = threads.submit(stream.request, {}, PATIENCE_S)
        with pytest.raises(TimeoutError):
            stream.request({}, 0.1)
        with pytest.raises(ConnectionResetError):
            other.result()
        assert stream.stream is None


def test_a_line_that_is_no_reply_ends_a_shared_stream() -> None:
    refuses = "import sys; sys.stdin.readline(); print('gateway: unknown verb')"
    with shared(refuses) as stream, pytest.raises(ConnectionResetError):
        stream.request({}, PATIENCE_S)


HANGS = """\
import os, sys, time
with open(sys.argv[1], "w") as file:
    print(os.getpid(), file=file)
time.sleep(600)
"""


def test_a_program_that_hangs_is_ended_with_its_stream(tmp_path: Path) -> None:
    """As `docker exec` does while Docker does not reply to it: it reads no stdin, so its end does not end it."""
    pid_file = tmp_path / "pid"
    stream = LineStream(LocalNode("n1"), Command((sys.executable, "-c", HANGS, str(pid_file))))
    stream.open()
    wait_for(pid_file)

    with pytest.raises(TimeoutError):
        stream.request("", 0.1)
    stream.close()

    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_a_program_that_hangs_is_ended_with_a_shared_stream(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    stream = SharedStream(LocalNode("n1"), Command((sys.executable, "-c", HANGS, str(pid_file))))
    stream._open()
    wait_for(pid_file)

    with pytest.raises(TimeoutError):
        stream.request({}, 0.1)

    assert ends(pid_file)


def test_a_shared_stream_whose_replies_no_thread_can_read_is_started_by_the_next_request() -> None:
    with shared(ONCE) as stream:
        with no_thread_starts(), pytest.raises(OSError, match="can't start new thread"):
            stream.request({}, PATIENCE_S)
        assert stream.request({}, PATIENCE_S)["pid"]
