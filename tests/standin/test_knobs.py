"""Knobs and arguments are read strictly, and written down where people look for them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from sparkops.config import assets, recipe_file
from sparkops.config.assets import BuildInputs
from sparkops.operator.build.render.context import build_context
from tests.places import ROOT
from tests.standin.program import module

RECIPE = ROOT / "recipes" / "stand-in.yaml"
knobs, arguments = module("knobs"), module("arguments")


def test_without_variables_nothing_misbehaves() -> None:
    assert knobs.read({"PATH": "/bin", "VLLM_API_KEY": "k"}) == knobs.Knobs()


def test_values_are_read_by_their_kind() -> None:
    read = knobs.read({"STAND_IN_START_S": "2.5", "STAND_IN_HANG_AT": "40", "STAND_IN_HEALTH_ONLY": "1"})
    assert (read.start_s, read.hang_at, read.health_only) == (2.5, 40, True)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("START_S", "soon", "expected seconds, from 0 to 86400"),
        ("START_S", "-1", "expected seconds, from 0 to 86400"),
        ("START_S", "nan", "expected seconds, from 0 to 86400"),
        ("HANG_AT", "101", "expected a whole percentage from 0 to 100"),
        ("HANG_AT", "4.5", "expected a whole percentage from 0 to 100"),
        ("HEALTH_ONLY", "yes", "expected 0 or 1"),
        ("ANSWERS", "lies", "expected one of true, nonsense, bangs"),
        ("TOK_S", "0", "expected tokens per second, from 0.01"),
        ("ERROR_RATE", "2", "expected a share from 0 to 1"),
        ("DIE_AFTER_REQUESTS", "0", "expected a whole number from 1"),
        ("RELEASE_NAME", "a\r\nb: c", "expected one line of ASCII text"),
        ("FATAL", "", "expected one line of printable text"),
        ("SILENT_S", "1", "expected at most STAND_IN_START_S, 0"),
        ("ANSWER", "true", "did you mean STAND_IN_ANSWERS?"),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: str, problem: str) -> None:
    with pytest.raises(knobs.BadKnob) as caught:
        knobs.read({f"STAND_IN_{name}": value})
    assert problem in str(caught.value)


@pytest.mark.parametrize("place", ["templates/stand-in/stand_in/__init__.py", "recipes/stand-in.yaml"])
def test_every_knob_is_written_down(place: str) -> None:
    text = (ROOT / place).read_text()
    assert [knob.name for knob in fields(knobs.Knobs) if knob.name.upper() not in text] == []


def test_the_recipe_has_only_knobs_that_exist() -> None:
    env = [line.split("#", 1)[-1].strip() for line in RECIPE.read_text().splitlines() if "STAND_IN_" in line]
    named = {line.partition(":")[0] for line in env if line.startswith("STAND_IN_")}
    assert named == set(knobs.NAMES)
    assert knobs.read(recipe_file.load(RECIPE).serve.env).start_s == 20


def test_the_whole_program_is_sent_to_a_build() -> None:
    context = build_context(recipe_file.load(RECIPE), assets.load_templates(), assets.load_mods(), BuildInputs())
    sent = {
        Path(path).relative_to("files") for path, _ in context.files if path.startswith("files/") and path[-1] != "/"
    }
    here = ROOT / "templates" / "stand-in"
    assert sent == {file.relative_to(here) for file in here.rglob("*.py")}


def test_arguments_are_read_as_sparkops_writes_them() -> None:
    argv = "serve /models/x --host=127.0.0.1 --port=9101 --served-model-name=a --no-b --c=1 --d 1 2 --max-model-len=99"
    read = arguments.parse(argv.split())
    assert (read.model, read.host, read.port) == ("/models/x", "127.0.0.1", 9101)
    assert (read.served_names, read.model_len) == (("a",), 99)
    assert (read.flags["no-b"], read.flags["c"], read.flags["d"]) == ("", "1", "1 2")


@pytest.mark.parametrize("argv", ["", "bench", "serve", "serve m --port=http", "serve m --max-model-len=0"])
def test_a_command_line_that_vllm_would_refuse_is_refused(argv: str) -> None:
    with pytest.raises(arguments.BadArguments):
        arguments.parse(argv.split())
