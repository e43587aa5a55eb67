"""What a shell script is read as: programs, arguments, environment, and the line of each."""

from __future__ import annotations

import pytest

from sparkops.lint.shell import Call, calls
from sparkops.lint.text import Text, Values


def read(script: str, **values: str | None) -> list[Call]:
    numbered = ((number, line) for number, line in enumerate(script.split("\n"), 1))
    return list(calls(Text.joined(numbered, "\n"), values))


def argv(script: str, **values: str | None) -> list[str]:
    return [" ".join(call.argv) for call in read(script, **values)]


def environment(script: str, **values: str | None) -> Values:
    return read(script, **values)[-1].environment


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a b && c || d; e & f\ng", ["a b", "c", "d", "e", "f", "g"]),
        ("if a; then b; elif ! c; else d; fi", ["a", "b", "c", "d"]),
        ("while a; do b; done; { c; }; (d; e)", ["a", "b", "c", "d", "e"]),
        ("case $X in a|b) c;; *) d;; esac; e", ["c", "d", "e"]),
        ("a # b && c\nd '#' e#f", ["a", "d # e#f"]),
        ("a \\\n  b\\\nc", ["a bc"]),
        ("a 'b;  c' \"d && e\" f\\;g h\"i\"'j'", ["a b;  c d && e f;g hij"]),
        ("a $(b c) `d`", ["b c", "d", "a $(b c) `d`"]),
        ('a "$(b "$(c)")" $((1 + 2))', ["c", "b $(c)", 'a $(b "$(c)") $((1 + 2))']),
        ("a > b 2>&1 < c >> d", ["a"]),
        ("cat <<EOF > x\nb && c\nEOF\nd", ["cat", "d"]),
        ("cat <<-'A' && b\n\tx\n\tA\nc", ["cat", "b", "c"]),
        ("bash -euc 'a; b' && c", ["bash -euc a; b", "a", "b", "c"]),
        ("bash <<EOF\na\nEOF\nb", ["bash", "a", "b"]),
        ("sudo -E -u me nice -n 10 timeout -k 5 60 a b", ["a b"]),
        ("python3.12 -I -m pip install x", ["pip install x"]),
        ("[[ -f a && -d b ]] && c", ["[[ -f a", "-d b ]]", "c"]),
        ("a 'b", ["a b"]),
        ("a <", ["a"]),
        ("", []),
    ],
)
def test_every_program_of_a_script_is_found(script: str, expected: list[str]) -> None:
    assert argv(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a $X ${X} '$X' \"$X\"", ["a 1 1 $X 1"]),
        ("a ${X:-2} ${Y:-2} ${Y-$X} ${X:+y} ${Y:+n}", ["a 1 2 1 y"]),
        ("a ${X%.*} $Y ${Y}", ["a ${X%.*} $Y ${Y}"]),
        ("Y=2 && a $Y; Y=3 b $Y", ["a 2", "b 2"]),
        ("for Y in 1 2; do a $Y; done", ["a 1 2"]),
        ('set -e -- 1 2 && a "$@"', ["a 1 2"]),
        ("export Y=2; unset X; a $X $Y", ["a $X 2"]),
        ("a $LIST \"$LIST\" x$LIST", ["a b c b c xb c"]),
        ("a ${UNKNOWN:+--b=$UNKNOWN} c", ["a c"]),
    ],
)  # fmt: skip
def test_variables_are_followed_as_far_as_they_are_known(script: str, expected: list[str]) -> None:
    assert argv(script, X="1", LIST="b c", UNKNOWN=None) == expected


def test_an_unquoted_value_is_split_and_a_quoted_one_is_not() -> None:
    (call,) = read('a $L "$L" x$L', L="b c")

    assert call.argv == ("a", "b", "c", "b c", "xb", "c")


def test_a_value_that_begins_or_ends_with_a_space_ends_a_word_there() -> None:
    (call,) = read("a x$B y${E}z", B=" b", E="e ")

    assert call.argv == ("a", "x", "b", "ye", "z")


def test_only_what_is_exported_reaches_a_program() -> None:
    assert "Y" not in environment("Y=2; a")
    assert environment("export Y=2; a")["Y"] == "2"
    assert environment("Y=2; export Y; a")["Y"] == "2"
    assert environment("X=2; a", X="1")["X"] == "2"
    assert environment("Y=2 a")["Y"] == "2"
    assert environment("env Y=2 -u X a", X="1") == {"Y": "2"}
    assert "Y" not in environment("Y=2 a; b")


def test_a_command_in_a_substitution_changes_nothing_outside() -> None:
    assert argv("a $(X=2; b $X) $X", X="1") == ["b 2", "a $(X=2; b $X) 1"]


def test_every_call_knows_its_line() -> None:
    script = "a && \\\n  b \\\n  | c\nbash <<EOF\nd\n\ne\nEOF\nf \\\n  $(g)"

    assert [(call.argv[0], call.line) for call in read(script)] == [
        ("a", 1),
        ("b", 2),
        ("c", 3),
        ("bash", 4),
        ("d", 5),
        ("e", 7),
        ("g", 10),
        ("f", 9),
    ]


def test_a_call_knows_what_it_reads_and_where_it_writes() -> None:
    *_, last = read("a | b 2>/dev/null | tee x >> y")

    assert [call.argv[0] for call in last.before] == ["a", "b"]
    assert [(redirect.operator, redirect.target) for redirect in last.redirects] == [(">>", "y")]


def test_a_heredoc_is_expanded_unless_its_name_is_quoted() -> None:
    plain, quoted = read("cat <<A\n$X\nA\ncat <<'A'\n$X\nA", X="1")

    assert [call.redirects[0].body for call in (plain, quoted)] == ["1", "$X"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cd b && x", "/a/b"),
        ("cd /b/../c; x", "/c"),
        ("cd b && cd c && cd - && x", "/a/b"),
        ("(cd b && y) && x", "/a"),
        ("(cd b && (cd c; y); x)", "/a/b"),
        ("if [ -d b ]; then cd b; else x; fi", "/a"),
        ("if [ -d b ]; then cd b; elif [ -d c ]; then cd c; fi; x", "/a/c"),
        ("V=$(cd b && y) && x", "/a"),
        ("pushd b; y; popd; x", "/a"),
        ("cd b && bash -c 'cd c; x'", "/a/b/c"),
        ("cd b && bash -c 'cd c' && x", "/a/b"),
        ("cd $B && x", "/a/d"),
    ],
)
def test_a_call_has_the_directory_that_cd_leads_to(script: str, expected: str) -> None:
    text = Text.of_line(script, 1)

    assert [call.directory for call in calls(text, {"B": "d"}, "/a") if call.program == "x"] == [expected]


def test_a_variable_of_a_subshell_is_gone_after_it() -> None:
    assert argv("(A=1; x $A); y $A") == ["x 1", "y $A"]


def test_what_is_nested_very_deeply_ends() -> None:
    assert argv("$(" * 500 + "a" + ")" * 500) != []
    assert argv("echo " + "${A:-" * 500 + "b" + "}" * 500, A=None) != []


def test_redirections_without_a_file_end() -> None:
    assert argv("a " + "< " * 50_000 + "b; c") == ["a", "c"]
