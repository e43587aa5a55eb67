"""What is known of the files that a stage writes."""

from __future__ import annotations

import pytest

from sparkops.lint.dockerfile import build, parse
from sparkops.lint.files import written_files


def contents(text: str) -> dict[str, str | None]:
    return written_files(build(parse(f"FROM a:1\nENV X=1\nWORKDIR /w\n{text}\n")).stages[-1]).contents


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RUN echo $X > a", {"/w/a": "1\n"}),
        ("RUN echo one > a && echo two >> a", {"/w/a": "one\ntwo\n"}),
        ("RUN echo one > a && echo two > a", {"/w/a": "two\n"}),
        ("RUN printf '%s\\n' $X 2 > /a", {"/a": "%s\\n\n1\n2\n"}),
        ("RUN make > a", {"/w/a": None}),
        ("RUN echo one > a && make >> a", {"/w/a": "one\n"}),
        ("RUN echo one | tee -a a", {"/w/a": "one\n"}),
        ("RUN cat <<EOF > a\n$X\nEOF", {"/w/a": "1\n"}),
        ("RUN cat <<'EOF' > a\n$X\nEOF", {"/w/a": "$X\n"}),
        ("COPY <<EOF a\n$X\nEOF", {"/w/a": "1"}),
        ("COPY <<'EOF' a\n$X\nEOF", {"/w/a": "$X"}),
        ("FROM a:1\nRUN ls", {}),
    ],
)
def test_what_is_written_is_known_as_far_as_it_can_be_read(text: str, expected: dict[str, str | None]) -> None:
    assert contents(text) == expected
