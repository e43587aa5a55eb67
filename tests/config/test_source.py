"""YAML that users write."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from sparkops.config import shipped, source
from sparkops.config.compose import MAX_NODES
from sparkops.errors import ConfigError


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str | bytes) -> object:
    file = Path("f.yaml")
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return source.read(file).data


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a: 1\nb: [x, 2.5, true, null]\n", {"a": 1, "b": ["x", 2.5, True, None]}),
        ("a: 'yes'\nb: \"010\"\nc: 0x10\n", {"a": "yes", "b": "010", "c": 16}),
        ("a: &x [1]\nb: *x\n", {"a": [1], "b": [1]}),
        ("day: 2026-11-21\n", {"day": "2026-11-21"}),
        ("a: !!str 5\n", {"a": "5"}),
        ("- 1\n- {a: 2}\n", [1, {"a": 2}]),
        (f"[{2**63 - 1}, {-(2**63)}, 1.0e+308]", [2**63 - 1, -(2**63), 1e308]),
    ],
)
def test_plain_yaml_becomes_plain_data(text: str, data: object) -> None:
    assert read(text) == data


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "f.yaml:1: the file is empty"),
        ("# nothing\n", "f.yaml:1: the file is empty"),
        ("a: [1\n", "f.yaml:2: not YAML: a list or mapping in brackets is not closed"),
        ("a: 1\n\tb: 2\n", "f.yaml:2: not YAML: a tab; indent with spaces"),
        ("a: [\n", "f.yaml:2: not YAML: a value is missing, or a list or mapping in brackets is not closed"),
        ("a: @x\n", "f.yaml:1: not YAML: text that begins with this character needs quotes"),
        ("a:\n  b: 1\n c: 2\n", "f.yaml:3: not YAML: no line above has the indent of this line"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: not YAML: but found another document"),
        ("a: *nowhere\n", "f.yaml:1: not YAML: an alias without an anchor; put text that begins with * in quotes"),
        ("a: b\x00\n", "f.yaml:1: not YAML: a control character"),
        (b"a: \xff\n", "f.yaml:1: not YAML: not text in UTF-8"),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", "f.yaml:4: a.b: duplicate key, first on line 2"),
        ("a: 1\n2: b\n", "f.yaml:2: expected a text key; put it in quotes"),
        ("a:\n  on: b\n", "f.yaml:2: a: expected a text key; put it in quotes"),
        ("? [a]\n: b\n", "f.yaml:1: expected a text key; put it in quotes"),
        ("<<: {a: 1}\n", "f.yaml:1: merging with << is not allowed; write the values out, or use `defaults`"),
        ("a:\n- !secret b\n", "f.yaml:2: a[0]: tag '!secret' is not allowed, expected plain values"),
        (
            "a: !!python/object/apply:os.system [id]\n",
            "f.yaml:1: a: tag 'tag:yaml.org,2002:python/object/apply:os.system' is not allowed, expected plain values",
        ),
        ("a:\n  b: yes\n", "f.yaml:2: a.b: yes is ambiguous in YAML, expected true or false; text needs quotes: 'yes'"),
        ("a: Off\n", "f.yaml:1: a: Off is ambiguous in YAML, expected true or false; text needs quotes: 'Off'"),
        ("a: 010\n", "f.yaml:1: a: 010 is ambiguous in YAML, expected a decimal number; text needs quotes: '010'"),
        ("a: 1:30\n", "f.yaml:1: a: 1:30 is ambiguous in YAML, expected a decimal number; text needs quotes: '1:30'"),
        ("a: !!int abc\n", "f.yaml:1: a: 'abc' cannot be read as int"),
        ("a: !!bool maybe\n", "f.yaml:1: a: 'maybe' cannot be read as bool"),
        ("a: !!map b\n", "f.yaml:1: a: 'b' cannot be read as map"),
        ("a: 0x_\n", "f.yaml:1: a: '0x_' cannot be read as int"),
        (f"a: {'9' * 5000}\n", f"f.yaml:1: a: '{'9' * 40}' cannot be read as int"),
        ("a: 1\nb: [.inf]\n", "f.yaml:2: b[0]: expected a finite number, got .inf"),
        ("a: -.Inf\n", "f.yaml:1: a: expected a finite number, got -.Inf"),
        ("a:\n  b: .nan\n", "f.yaml:2: a.b: expected a finite number, got .nan"),
        ("a: !!float nan\n", "f.yaml:1: a: expected a finite number, got nan"),
        ("a: !!float 1e400\n", "f.yaml:1: a: expected a finite number, got 1e400"),
        ("a: 1.0e+400\n", "f.yaml:1: a: expected a finite number, got 1.0e+400"),
        (f"a: {2**63}\n", f"f.yaml:1: a: expected a whole number of at most 64 bits, got {2**63}"),
        (
            "a: -0x8000000000000001\n",
            "f.yaml:1: a: expected a whole number of at most 64 bits, got -0x8000000000000001",
        ),
        (f"a: {'9' * 400}\n", f"f.yaml:1: a: expected a whole number of at most 64 bits, got {'9' * 40}"),
    ],
)
def test_anything_else_is_refused_with_its_line(text: str | bytes, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)

    assert str(caught.value) == error


@given(text=st.text("[]{}:,-?!&*'\"|>#%@` \n\t\\~ab01._e+infnx<=", max_size=120))
@example(text="a: !!timestamp [")
@example(text="a: !!float '.'")
@example(text="a: !!int ''")
@example(text="a: 0b")
@example(text="a: 9999-99-99")
@example(text='a: "\\U99999999"')
@example(text='a: "\\U00110000"')
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        line = f"f.yaml:1: {json.dumps(read(text), allow_nan=False)}"
    except ConfigError as error:
        line = str(error)

    assert re.fullmatch(r"f\.yaml:\d+: .*", line)


@given(number=st.floats() | st.integers())
def test_a_number_is_read_as_it_is_written_or_refused(number: float) -> None:
    held = math.isfinite(number) if isinstance(number, float) else -(2**63) <= number < 2**63
    text = yaml.safe_dump({"a": number})

    if held:
        assert read(text) == {"a": number}
    else:
        with pytest.raises(ConfigError, match=r"^f\.yaml:1: a: expected a (finite|whole) number"):
            read(text)


def test_a_file_is_read_as_python_reads_it() -> None:
    files = [file for file in (shipped.PACKAGE.parent / "recipes").rglob("*") if file.suffix in (".yaml", ".lock")]

    assert len(files) > 40
    for file in files:
        assert source.read(file).data == yaml.load(file.read_text(), Loader=yaml.SafeLoader), file


def test_a_file_that_is_not_there_says_so() -> None:
    with pytest.raises(ConfigError, match=r"^nowhere\.yaml:1: cannot be read: No such file or directory$"):
        source.read(Path("nowhere.yaml"))


def test_a_directory_is_not_a_file() -> None:
    with pytest.raises(ConfigError, match=r"^\.:1: cannot be read: Is a directory$"):
        source.read(Path())


def test_a_file_of_more_than_a_mebibyte_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^f\.yaml:1: larger than 1048576 bytes$"):
        read("a: " + "x" * (source.MAX_BYTES - 2))


def test_aliases_cannot_multiply_for_ever() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )

    with pytest.raises(
        ConfigError, match=r"^f\.yaml:\d+: a.*: too large: expected at most 50 levels and 20000 values$"
    ):
        read(bomb)


def test_twenty_thousand_values_are_allowed_and_no_more() -> None:
    assert read("[" + "1," * 19_999 + "]") == [1] * 19_999
    with pytest.raises(ConfigError, match=r"^f\.yaml:1: \[19999\]: too large"):
        read("[" + "1," * 20_000 + "]")


def test_an_alias_of_itself_is_too_deep() -> None:
    with pytest.raises(ConfigError, match="too large: expected at most 50 levels"):
        read("a: &a [*a]\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[" * 52, 1),
        ("[" * 10_000, 1),
        ("a: " + "[" * 52 + "]" * 52, 1),
        ("- " * 10_000, 1),
        ("a: 1\nb:\n  " + "{a: " * 10_000, 3),
        ("? " * 10_000, 1),
        ("\n".join(" " * n + "a:" for n in range(100)), 51),
    ],
    ids=["52", "brackets", "closed", "list", "mapping", "keys", "indented"],
)
def test_depth_is_bounded(text: str, line: int) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)

    assert str(caught.value) == f"f.yaml:{line}: nested too deep, expected at most 50 levels"


def test_fifty_levels_are_allowed() -> None:
    read("[" * 50 + "]" * 50)


def test_an_error_points_to_the_nearest_line_that_was_written() -> None:
    file = Path("f.yaml")
    file.write_text("a: 1\nb:\n  c: 2\n")

    error = source.read(file).fail(("b", "missing", 0), "expected more")

    assert str(error) == "f.yaml:2: b.missing[0]: expected more"


@pytest.mark.parametrize(
    "text", ["[" + "a," * 500_000 + "a]", "a: [" + "{b: c}," * 100_000 + "]"], ids=["list", "keys"]
)
def test_many_values_are_refused_before_all_are_read(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^f\.yaml:1: larger than {MAX_NODES} keys and values$"):
        read(text)


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^/dev/zero:1: cannot be read: expected a regular file, got a device$"):
        source.read(Path("/dev/zero"))
