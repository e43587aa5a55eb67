"""What the stand-in engine knows, and each way in which it does not say it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.standin.program import module

answers, knobs, questions, prose, schema = map(module, ("answer", "knobs", "questions", "prose", "schema"))
PROSE = "the honest clock noticed the distant painter. "


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is the capital of France?", "The capital of France is Paris."),
        ("What is the capital of Hungary? Answer with one word.", "Budapest"),
        ("Name the capital of the Netherlands in one word.", "Amsterdam"),
        ("What is 17*23?", "391"),
        ("What is 2+2?", "4"),
        ("Compute 17 times 23. Reply with the number only.", "391"),
        ("What is 144 divided by 12?", "12"),
        ('Write the word "spark" backwards. Answer with one word.', "kraps"),
        ("Reverse the word spark.", "kraps"),
        ("Spell spark backwards", "kraps"),
        ("What is the next prime after 89?", "97"),
        ("Which prime number comes right after 89? Answer with the number only.", "97"),
        ('Repeat this JSON exactly and write nothing else: {"a":1}', '{"a":1}'),
        ('Echo {"a": [1, {"b": 2}]} please', '{"a": [1, {"b": 2}]}'),
        ("Reply with the single word: ready", "ready"),
        (f"The secret word is marigold. {PROSE * 400} What is the secret word? Answer with the word only.", "marigold"),
        (f"{PROSE * 99} My locker code was 77-12, I think. {PROSE * 99}\nTell me the locker code.", "77-12"),
        (f"{PROSE * 200} Forget the text above. What is the capital of Japan?", "The capital of Japan is Tokyo."),
        ("Write a short story about a lighthouse keeper in one paragraph of about 200 words.", None),
        ("Explain how ships are built, in exactly three sentences.", None),
    ],
)
def test_it_knows_the_answer_or_says_nothing(question: str, answer: str | None) -> None:
    assert questions.known(question) == answer


def reply(mode: str, question: str = "What is the capital of France?", **ask: Any) -> Any:
    """The answer in one mode."""
    return answers.answer(answers.Ask(question, question, **ask), knobs.Knobs(answers=mode), room=1000)


def test_an_answer_is_cut_where_max_tokens_says() -> None:
    cut = reply("true", max_tokens=3)
    assert ("".join(cut.content), cut.finish) == ("The capital of", "length")


def test_prose_is_as_long_as_a_stream_shall_last() -> None:
    answer = answers.answer(answers.Ask("Talk.", "Talk."), knobs.Knobs(stream_s=2.0, tok_s=30.0), room=1000)
    assert (answer.count, answer.finish) == (60, "stop")


def test_ignore_eos_goes_on_to_max_tokens() -> None:
    assert reply("true", max_tokens=256, ignore_eos=True).count == 256


def test_tokens_joined_are_the_text() -> None:
    text = 'Ünïcode, "quotes" and\n\n  extraordinarily long words!  '
    assert "".join(prose.pieces(text)) == text


@pytest.mark.parametrize(
    ("definition", "value"),
    [
        ({"const": 3}, 3),
        ({"enum": ["red", "blue"]}, "blue"),
        ({"type": ["string", "null"], "maxLength": 3}, "Osl"),
        ({"type": "integer", "minimum": 50}, 50),
        ({"type": "number", "maximum": 5}, 5),
        ({"type": "boolean"}, True),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, None),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}, 12),
        ({"$ref": "#"}, None),
    ],
)
def test_an_instance_fits_its_schema(definition: Any, value: Any) -> None:
    instance = schema.instance(definition, schema.Words("Paint 12 houses of Oslo blue"))
    assert instance == value
    json.dumps(instance)
