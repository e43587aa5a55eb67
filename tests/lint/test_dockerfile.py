"""What a Dockerfile is read as: instructions with their lines."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkops.lint.dockerfile import Dockerfile, Instruction, parse

WORD = st.text(string.ascii_letters + string.digits + "=/.$:", min_size=1, max_size=12)
BODY = st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=30), max_size=6)


def keywords(text: str) -> list[tuple[str, int, int]]:
    return [(instruction.keyword, instruction.line, instruction.end) for instruction in parse(text).instructions]


def only(text: str) -> Instruction:
    """The instruction behind the FROM."""
    _, instruction = parse(f"FROM a:1\n{text}").instructions
    return instruction


def problems(text: str) -> list[str]:
    return [f"{line}: {problem}" for line, problem in parse(text).problems]


def test_an_instruction_knows_its_lines_and_each_word_its_own() -> None:
    run = only("RUN one \\\n  two \\\n  three\n")

    assert (run.line, run.end) == (2, 4)
    assert [run.rest.line(run.rest.text.index(word)) for word in ("one", "two", "three")] == [2, 3, 4]


def test_comments_and_blank_lines_inside_an_instruction_belong_to_no_text() -> None:
    dockerfile = parse("FROM a:1\nRUN one \\\n  # why\n\n  && two\nUSER x\n")

    assert [instruction.rest.text for instruction in dockerfile.instructions] == ["a:1", "one   && two", "x"]
    assert [(comment.line, comment.text) for comment in dockerfile.comments] == [(3, "why")]


def test_a_line_that_ends_in_two_escapes_does_not_go_on() -> None:
    assert keywords("FROM a:1\nRUN one \\\\\nRUN two\n") == [("FROM", 1, 1), ("RUN", 2, 2), ("RUN", 3, 3)]


def test_the_escape_directive_changes_what_continues_a_line() -> None:
    assert keywords("# escape=`\nFROM a:1\nRUN dir `\n  c:\\\nUSER x\n") == [
        ("FROM", 2, 2),
        ("RUN", 3, 4),
        ("USER", 5, 5),
    ]


@pytest.mark.parametrize("above", ["FROM a:1\n", "# a comment\n", "\n"])
def test_a_directive_is_one_only_at_the_very_top(above: str) -> None:
    assert parse(f"{above}# escape=`\nFROM a:1\n").escape == "\\"


def test_a_duplicate_or_invalid_directive_is_a_problem() -> None:
    text = "# syntax=docker/dockerfile:1\n# syntax=x\n# escape=%\nFROM a:1\n"

    assert problems(text) == [
        "2: duplicate directive syntax, expected one",
        "3: invalid escape=%, expected \\ or `",
    ]


def test_a_byte_order_mark_and_the_ends_of_lines_of_windows_do_not_matter() -> None:
    text = "# escape=`\nFROM a:1\nRUN one `\n two <<EOF\nbody\nEOF\nUSER x\n"

    assert parse("\ufeff" + text.replace("\n", "\r\n")) == parse(text)


def test_keywords_may_be_small_and_flags_are_taken_off() -> None:
    run = only("run --mount=type=cache,target='/a b' --network=none pip install x")

    assert run.keyword == "RUN"
    assert run.flags == (("mount", "type=cache,target=/a b"), ("network", "none"))
    assert run.rest.text == "pip install x"


@pytest.mark.parametrize(
    ("text", "bodies"),
    [
        ("RUN <<EOF\nFROM x\nEOF\n", ["FROM x"]),
        ("RUN <<EOF bash -e\n\nRUN y # z \\\nEOF\n", ["\nRUN y # z \\"]),
        ("RUN cat <<ONE > a && cat <<'TWO' > b\n1\nONE\n2\nTWO\n", ["1", "2"]),
        ("RUN 3<<-EOF cat\n\tx\n\tEOF\n", ["x"]),
        ("COPY <<A <<B /to/\nFROM a\nA\nFROM b\nB\n", ["FROM a", "FROM b"]),
        ("ONBUILD RUN <<EOF\nFROM x\nEOF\n", ["FROM x"]),
        ("RUN <<EOF\nEOF\n", [""]),
    ],
)
def test_the_body_of_a_heredoc_is_no_instruction(text: str, bodies: list[str]) -> None:
    dockerfile = parse(f"FROM a:1\n{text}USER x\n")

    assert [instruction.keyword for instruction in dockerfile.instructions] == [
        "FROM",
        text.split()[text.startswith("ONBUILD")],
        "USER",
    ]
    assert [heredoc.body.text for heredoc in dockerfile.instructions[1].heredocs] == bodies
    assert dockerfile.problems == ()


@pytest.mark.parametrize(
    "line",
    [
        "RUN cat <<<EOF",
        "RUN echo 'a <<EOF b'",
        "RUN cat << EOF",
        'RUN ["a", "<<EOF"]',
        "ENV A=<<EOF",
        "RUN echo x<<EOF",
    ],
)
def test_what_only_looks_like_a_heredoc_takes_no_lines(line: str) -> None:
    keyword = line.partition(" ")[0]

    assert keywords(f"FROM a:1\n{line}\nUSER x\n") == [("FROM", 1, 1), (keyword, 2, 2), ("USER", 3, 3)]


def test_an_unclosed_heredoc_is_a_problem_at_its_first_line() -> None:
    assert problems("FROM a:1\nRUN <<EOF\n  EOF\nx") == ["2: unclosed heredoc EOF, expected a line with only EOF"]


def test_onbuild_is_kept_with_the_instruction_that_it_puts_off() -> None:
    instruction = only("ONBUILD RUN pip install x")

    assert (instruction.keyword, instruction.onbuild, instruction.rest.text) == ("RUN", True, "pip install x")


def test_an_unknown_instruction_and_a_file_without_stages_are_problems() -> None:
    assert problems("FROM a:1\nRUNN x\n") == ["2: unknown instruction RUNN, expected one such as RUN or COPY"]
    assert problems("# nothing\n") == ["1: no FROM, expected at least one stage"]


def test_the_exec_form_is_a_list_of_words_and_a_test_is_not() -> None:
    assert only('RUN ["uv", "pip", "install", "it\'s"]').words == ("uv", "pip", "install", "it's")
    assert only("RUN [ -f x ]").words is None
    assert only("RUN " + "[" * 100_000).words is None


@given(words=st.lists(WORD, min_size=1, max_size=8), between=st.lists(st.sampled_from(["", "# c", "   "]), max_size=3))
def test_joining_lines_keeps_the_line_of_every_word(words: list[str], between: list[str]) -> None:
    gap = "".join(f"{line}\n" for line in between)
    numbered = [f"w{number}:{word}" for number, word in enumerate(words)]
    text = "FROM a:1\nRUN " + f" \\\n{gap}".join(numbered) + "\nUSER x\n"

    run, user = parse(text).instructions[1:]

    lines = [2 + number * (1 + len(between)) for number in range(len(words))]
    assert [run.rest.line(run.rest.text.index(word)) for word in numbered] == lines
    assert (run.line, run.end, user.line) == (2, lines[-1], lines[-1] + 1)
    assert run.rest.text.split() == numbered


@given(body=BODY, name=st.sampled_from(["EOF", "'EOF'", '"EOF"', "-EOF"]), keyword=st.sampled_from(["RUN", "COPY"]))
def test_no_body_of_a_heredoc_is_ever_taken_for_instructions(body: list[str], name: str, keyword: str) -> None:
    lines = [line for line in body if line.lstrip("\t") != "EOF"]
    text = "".join(f"{line}\n" for line in ["FROM a:1", f"{keyword} <<{name} /x", *lines, "EOF", "USER x"])

    dockerfile = parse(text)

    assert [instruction.keyword for instruction in dockerfile.instructions] == ["FROM", keyword, "USER"]
    assert dockerfile.instructions[2].line == len(lines) + 4
    assert dockerfile.comments == ()
    written = [line.lstrip("\t") for line in lines] if name == "-EOF" else lines
    assert dockerfile.instructions[1].heredocs[0].body.text == "\n".join(written)


@given(st.text(st.sampled_from(string.printable + "é\ufeff\u2028"), max_size=200))
def test_any_text_is_read_and_every_line_number_is_one_of_the_file(text: str) -> None:
    dockerfile: Dockerfile = parse(text)

    last = text.count("\n") + 1
    assert all(1 <= instruction.line <= instruction.end <= last for instruction in dockerfile.instructions)
    assert all(1 <= line <= last for line, _ in dockerfile.problems)
