"""Statistics that tell text and code in any language from noise and loops, with no second model. Pure."""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from sparkops.config.smoke import TextCheck
from sparkops.serving.smoke.openai import ChatReply, shown
from sparkops.serving.smoke.results import CheckFinding

DRAWN = re.escape("-=_*#~|\u2500\u2550")  # what tables and headings are drawn with
WORD = re.compile(rf"[A-Za-z\u00c0-\u1fff]+|\w|[^\w\s{DRAWN}]")  # a letter of a script without spaces is a word
RUN = re.compile(rf"([^\s.{DRAWN}])\1*")
EAST_ASIAN = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "FULLWIDTH", "HALFWIDTH"}
REPLACEMENT = "\ufffd"


def judge(reply: ChatReply, tuning: TextCheck) -> CheckFinding:
    """Whether the answer is a text. A model that thinks may have got no further than its thoughts."""
    text = reply.reasoning + reply.text
    problems = (*_faults(text, tuning), *_doubts(reply.logprobs, tuning))
    for problem, expected, got in problems:
        return CheckFinding(problem, expected, f"{got}: {shown(text)}")
    sure = f", mean logprob {mean(reply.logprobs):.2f}" if reply.logprobs else ""
    return CheckFinding(note=f"{len(text)} characters, packed to {packed(text):.0%}{sure}")


Fault = tuple[str, str, str]
"""What is wrong, what was expected, what was found."""


def _faults(text: str, tuning: TextCheck) -> Iterator[Fault]:
    """What is wrong with a text, the clearest first."""
    if len(text) < tuning.min_characters:
        yield "the text is too short", f"at least {tuning.min_characters} characters", f"{len(text)}"
    yield from garbage(text, tuning)
    if (share := packed(text)) < tuning.packed_low:
        yield "the text repeats itself", f"more than {tuning.packed_low:.0%} of its size when packed", f"{share:.0%}"
    if share > tuning.packed_high:
        yield "the text is noise", f"less than {tuning.packed_high:.0%} of its size when packed", f"{share:.0%}"
    if (share := distinct(text)) < tuning.min_distinct:
        expected = f"at least {tuning.min_distinct:.0%} distinct groups of three words"
        yield "the text runs in a loop", expected, f"{share:.0%}"
    if (share := worded(text)) < tuning.min_words:
        yield "the text has too few words", f"at least {tuning.min_words:.0%} letters and spaces", f"{share:.0%}"
    if (share := in_two_scripts(text)) < tuning.min_scripts:
        yield (
            "the text mixes scripts",
            f"at least {tuning.min_scripts:.0%} of its letters in two scripts",
            f"{share:.0%}",
        )


def garbage(text: str, tuning: TextCheck) -> Iterator[Fault]:
    """What is wrong with a text of any length."""
    if text and (share := printable(text)) < tuning.min_printable:
        expected = f"at least {tuning.min_printable:.0%} printable characters"
        yield "the answer has unprintable characters", expected, f"{share:.0%}"
    if (longest := longest_run(text)) and len(longest) >= tuning.max_run:
        yield (
            "one character fills the answer",
            f"fewer than {tuning.max_run} in a row",
            f"{len(longest)} times {longest[0]!r}",
        )


def _doubts(logprobs: Sequence[float | None], tuning: TextCheck) -> Iterator[Fault]:
    """What the model itself thought of its tokens."""
    bad = [logprob for logprob in logprobs if logprob is None or not math.isfinite(logprob)]
    if bad:
        got = f"{bad[0]} for {len(bad)} of {len(logprobs)} tokens"
        yield "logprobs are not numbers", "a number for each token", got
    elif logprobs and mean(logprobs) <= tuning.mean_logprob:
        expected = f"a mean logprob above {tuning.mean_logprob:g}"
        yield "the model gives its own text a low probability", expected, f"{mean(logprobs):.2f}"


def mean(logprobs: Sequence[float | None]) -> float:
    """The mean of those that are numbers."""
    numbers = [logprob for logprob in logprobs if logprob is not None]
    return sum(numbers) / len(numbers) if numbers else 0.0


def printable(text: str) -> float:
    """Share of the characters that can be printed."""
    return _share(text, lambda char: char != REPLACEMENT and (char.isprintable() or char in "\n\r\t"))


def worded(text: str) -> float:
    """Share of the characters that are letters, the marks on them, or spaces."""
    return _share(text, lambda character: character.isspace() or unicodedata.category(character)[0] in "LM")


def longest_run(text: str) -> str:
    """The longest run of one character, leaving out spaces and what tables are drawn with."""
    return max((match.group() for match in RUN.finditer(text)), key=len, default="")


def packed(text: str) -> float:
    """Size after zlib over size before."""
    raw = text.encode(errors="replace")
    return len(zlib.compress(raw, 9)) / len(raw) if raw else 0.0


def distinct(text: str) -> float:
    """Share of the groups of three words that are distinct."""
    words = WORD.findall(text)
    groups = list(zip(words, words[1:], words[2:], strict=False))
    return len(set(groups)) / len(groups) if groups else 1.0


def in_two_scripts(text: str) -> float:
    """Share of the letters that belong to the two commonest scripts; those of East Asia count as one."""
    scripts = Counter(_script(character) for character in text if character.isalpha())
    return sum(count for _, count in scripts.most_common(2)) / scripts.total() if scripts else 1.0


def _script(letter: str) -> str:
    name = re.split(r"[ -]", unicodedata.name(letter, "?"))[0]
    return "EAST ASIAN" if name in EAST_ASIAN else name


def _share(text: str, fits: Callable[[str], bool]) -> float:
    return sum(map(fits, text)) / len(text) if text else 0.0
