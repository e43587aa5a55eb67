"""Text statistics: what people write passes in any language, what broken engines say does not."""

from __future__ import annotations

import math

import pytest

from sparkops.config.smoke import TextCheck
from sparkops.serving.smoke import garbage
from sparkops.serving.smoke.openai import ChatReply
from tests.serving.smoke.texts import BAD, GOOD

TUNING = TextCheck()


@pytest.mark.parametrize("name", GOOD)
def test_text_passes(name: str) -> None:
    finding = garbage.judge(ChatReply(text=GOOD[name]), TUNING)

    assert str(finding) == f"{len(GOOD[name])} characters, packed to {garbage.packed(GOOD[name]):.0%}"


@pytest.mark.parametrize("name", GOOD)
def test_text_passes_wherever_it_is_cut(name: str) -> None:
    texts = [GOOD[name][:end] for end in range(TUNING.min_characters, len(GOOD[name]), 20)]

    assert [garbage.judge(ChatReply(text=text), TUNING).problem for text in texts] == [""] * len(texts)


@pytest.mark.parametrize("name", BAD)
def test_garbage_is_named(name: str) -> None:
    text, problem = BAD[name]

    assert problem in garbage.judge(ChatReply(text=text), TUNING).problem


def test_a_failure_says_what_was_expected_and_shows_the_text() -> None:
    text = "ha " * 100

    assert str(garbage.judge(ChatReply(text=text), TUNING)) == (
        f"the text repeats itself; expected more than 25% of its size when packed; got {garbage.packed(text):.0%}: "
        f"{text[:120] + '...'!r}"
    )


def test_a_model_that_got_no_further_than_its_thoughts_wrote_text() -> None:
    assert garbage.judge(ChatReply(reasoning=GOOD["english"]), TUNING).problem == ""


@pytest.mark.parametrize(
    ("logprobs", "problem", "got"),
    [
        ((-0.1, math.nan), "logprobs are not numbers", "nan for 1 of 2 tokens"),
        ((None, -0.1), "logprobs are not numbers", "None for 1 of 2 tokens"),
        ((-math.inf,), "logprobs are not numbers", "-inf for 1 of 1 tokens"),
        ((-2.0, -4.0), "the model gives its own text a low probability", "-3.00"),
        ((-2.5,), "the model gives its own text a low probability", "-2.50"),
    ],
)
def test_logprobs_are_judged_where_they_come(logprobs: tuple[float | None, ...], problem: str, got: str) -> None:
    finding = garbage.judge(ChatReply(text=GOOD["english"], logprobs=logprobs), TUNING)

    assert (finding.problem, finding.got.partition(": ")[0]) == (problem, got)


def test_good_logprobs_are_noted() -> None:
    finding = garbage.judge(ChatReply(text=GOOD["english"], logprobs=(-0.2, -0.4)), TUNING)

    assert (finding.problem, finding.note.endswith(", mean logprob -0.30")) == ("", True)


def test_what_tables_are_drawn_with_is_no_run() -> None:
    assert garbage.longest_run("|----------|==========| ........ ________ 1000000") == "000000"


@pytest.mark.parametrize(("text", "share"), [("a b c a b c", 0.75), ("a b c d", 1.0), ("a b", 1.0), ("", 1.0)])
def test_the_share_of_distinct_groups_of_three_words(text: str, share: float) -> None:
    assert garbage.distinct(text) == share


def test_a_loop_that_packs_like_text_is_named() -> None:
    finding = garbage.judge(ChatReply(text="the sea and the sky " * 20), TextCheck(packed_low=0.01))

    assert (finding.problem, finding.expected) == (
        "the text runs in a loop",
        "at least 60% distinct groups of three words",
    )


def test_thresholds_can_be_tuned() -> None:
    assert (
        garbage.judge(ChatReply(text="ready"), TextCheck(min_characters=3, packed_high=1.0)).problem
        == "the text is noise"
    )
    assert (
        garbage.judge(ChatReply(text="a1" * 100), TextCheck(packed_low=0.01, min_distinct=0.0, min_words=0.5)).problem
        == ""
    )
