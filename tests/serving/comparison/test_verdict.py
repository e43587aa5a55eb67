"""Two releases beside each other, as values: what is beyond the old one's own spread, and what is only shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sparkops.serving.comparison import answers, verdict
from sparkops.serving.comparison.answers import Answer, Answers, Baseline, Speed, Token
from sparkops.serving.comparison.verdict import Comparison
from tests.examples import recipe

RUN = recipe()
ASKED = answers.questions(RUN)
WORDS = ["The", "capital", "of", "France", "is", "Paris", "and", "it", "lies", "on", "the", "Seine"]


def said(words: Sequence[str] = WORDS, logprob: float = -0.5, **near: float) -> Answer:
    """An answer whose tokens all have this log-probability."""
    tokens = tuple(Token(text=word, logprob=logprob, near={word: logprob, **near}) for word in words)
    return Answer(text=" ".join(words), tokens=tokens)


def given(*rounds: Answer, **changes: Any) -> Answers:
    """The same answers to every question."""
    return Answers(release="old", window=4096, answers=(rounds,) * len(ASKED)).model_copy(update=changes)


def speeds(*tok_s: float, first_s: float = 0.1, beside: int = 0) -> tuple[Speed, ...]:
    return tuple(Speed(tok_s=value, first_s=first_s, beside=beside) for value in tok_s)


def compared(old: Answers, new: Answers, changed: str = "") -> Comparison:
    return verdict.compare(Baseline(questions=ASKED, old=old, changed=changed), new)


def test_the_same_answers_differ_in_nothing() -> None:
    same = given(said(), said(), speeds=speeds(20, 21))

    found = compared(same, same)

    assert found.beyond == ()
    assert found.examples == ()
    assert str(found).startswith("compared with old: the same weights, ")


def test_other_log_probabilities_are_refused_beyond_the_old_releases_own_spread() -> None:
    steady, shaky = given(said(), said(logprob=-0.51)), given(said(), said(logprob=-0.9))
    other = given(said(logprob=-0.8), said(logprob=-0.8))

    assert compared(steady, other).beyond == (
        "log-probabilities differ by up to 0.295, those of the old release by up to 0.010",
    )
    assert compared(shaky, other).beyond == ()


def test_rounding_is_no_difference_also_where_it_chooses_another_token() -> None:
    tie = [*WORDS[:6], "but", *WORDS[7:]]
    old, new = given(said(but=-0.52)), given(said(tie, logprob=-0.49, **{"and": -0.53}))

    assert compared(given(said(), said()), new).beyond == ()
    assert "the first 50% in common" in str(compared(given(said(), said()), new))
    assert compared(old, new).beyond == ()


def test_answers_that_part_at_once_are_refused_also_without_log_probabilities() -> None:
    old, new = given(Answer(text="Paris is it"), Answer(text="Paris is it")), given(Answer(text="The user asks"))

    assert compared(old, new).beyond == ("answers have the first 0% in common, those of the old release 100%",)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (Answer(text="get_weather()", form="tool call"), Answer(text="<tool_call>"), "text in place of a tool call"),
        (Answer(text="{}", form="JSON"), Answer(text="{", form="broken JSON"), "broken JSON in place of a JSON: '{'"),
        (Answer(text="yes"), Answer(problem="HTTP 400: too long"), "no answer: HTTP 400: too long"),
    ],
)
def test_what_the_old_release_answers_and_the_new_one_never_is_refused_with_any_weights(
    old: Answer, new: Answer, what: str
) -> None:
    for changed in ("", "model a to b"):
        found = compared(given(old, old), given(new, new), changed).beyond
        assert any(what in line for line in found), found
    assert not any(what in line for line in compared(given(old, old), given(new, old)).beyond)


def test_a_smaller_context_is_refused_and_a_larger_one_is_not() -> None:
    small, large = given(said(), window=2048), given(said(), window=8192)

    assert compared(given(said()), small).beyond == ("the context is 2048 tokens, that of the old release 4096",)
    assert compared(given(said()), large).beyond == ()
    assert compared(given(said()), given(said(), window=None)).beyond == ()


def test_a_slower_release_is_refused_unless_its_samples_and_the_old_ones_are_mixed() -> None:
    old = given(said(), speeds=speeds(20, 21, 22))

    def slower(*tok_s: float, **how: Any) -> tuple[str, ...]:
        return compared(old, given(said(), speeds=speeds(*tok_s, **how))).beyond

    assert slower(14, 15, 15.4) == ("15.0 tokens/s, the old release 21.0, beside 0 requests",)
    assert slower(14, 15, 20.5) == ("15.0 tokens/s, the old release 21.0, beside 0 requests",)
    assert slower(14, 15, 21.2, 21.5) == slower(18, 18.5, 19) == ()
    assert slower(14, 15, 15.4, beside=2) == ()
    assert slower(20, 21, 22, first_s=0.7) == ("first token after 0.700 s, the old release 0.100 s",)
    assert slower(20, 21, 22, first_s=0.5) == ()


def test_streams_of_a_few_tenths_of_a_second_tell_no_speed() -> None:
    old, new = given(said(), speeds=speeds(200, 210, 220)), given(said(), speeds=speeds(100, 101, 102))

    assert compared(old, new).beyond == ()
    assert "101.0 tokens/s, the old release 210.0" in str(compared(old, new))


@pytest.mark.parametrize(
    ("near", "difference"), [({"other": -7.0}, "1.000"), ({"another": -3.0}, "0.000"), ({"another": -9.8}, "0.400")]
)
def test_a_sure_answer_differs_where_what_it_has_not_chosen_is_likelier(near: dict[str, Any], difference: str) -> None:
    old = given(*[said(logprob=-0.001, other=-9.0)] * 2)

    found = str(compared(old, given(said(logprob=-0.001, **near))))

    assert f"differ by up to {difference}, those of the old release by up to 0.000" in found
    assert ("it differs from" in found) == (difference != "0.000")


def test_other_weights_are_reported_with_examples_and_not_refused() -> None:
    old, new = given(said(), speeds=speeds(20, 21)), given(Answer(text="London"), speeds=speeds(10, 11))

    found = compared(old, new, "model a to b")

    assert found.beyond == ()
    assert "other weights (model a to b)" in str(found)
    assert len(found.examples) == verdict.EXAMPLES
    assert "the new one: 'London'" in found.examples[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env": {"RELEASE": "two"}}, ""),
        ({"args": {"max-num-seqs": 4}}, ""),
        ({"args": {"quantization": "fp8"}}, "quantization None to fp8"),
    ],
)
def test_weights_are_the_same_unless_the_recipe_names_others(change: dict[str, Any], words: str) -> None:
    assert verdict.changed(RUN, recipe(serve=change)) == words


def test_a_revision_names_the_weights_and_without_one_the_directory_does() -> None:
    def of(path: str, revision: str | None) -> Any:
        return recipe(model={"path": path, "revision": revision})

    assert verdict.changed(of("a", "1"), of("b", "1")) == ""
    assert verdict.changed(of("a", None), of("b", None)) == "path a to b"
    assert verdict.changed(of("a", "1"), of("a", "2")) == "revision 1 to 2"
