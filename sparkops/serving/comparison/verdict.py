"""Whether a new release answers as the old one does, in figures beside the old one's own spread. Pure.

A release whose weights are the same must agree with the old one within that spread. What differs where weights or
their precision differ is for people: it is reported with examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product, zip_longest
from statistics import fmean, median

from sparkops.config.recipe import Recipe
from sparkops.serving.comparison.answers import SPEED_TOKENS, Answer, Answers, Baseline, Speed
from sparkops.serving.smoke.openai import shown

LOGPROB = 0.1
"""Least mean difference in nats that counts. A bfloat16 has 8 bits of precision, so that another order of the same sums
moves a logit of 20 by up to 0.08."""
SPREADS = 3.0
"""Times the old release's own spread beyond which a difference counts."""
PARTED = 0.5
"""Share of an answer: greedy answers of the same weights part late, if at all, for want of such rounding."""
SLOWER = 0.85
"""Share of the old release's median speed, and of its inverse for the first token, beyond which one is slower.

All samples of the new one but one must be slower than all of the old one but one, too: what else runs on a node spoils
one of six now and then.
"""
SHORT_S = 0.5
"""Seconds of a stream that is too short to tell a speed: its tokens arrive in the bursts of a busy processor."""
LATER_S = 0.5
"""Seconds by which the first token must come later, besides: less is the noise of a busy processor."""
EXAMPLES = 3
PRECISION = (
    "quantization",
    "dtype",
    "kv-cache-dtype",
    "hf-overrides",
    "load-format",
    "speculative-config",
    "tokenizer",
)
"""Arguments that change what the same files compute."""


@dataclass(frozen=True)
class Comparison:
    """Figures for people, and those that are beyond the old release's spread. `examples`: old and new side by side."""

    old: str
    figures: tuple[str, ...]
    beyond: tuple[str, ...]
    examples: tuple[str, ...]

    @property
    def refusal(self) -> str:
        """Why a swap that refuses differences refuses it; empty if nothing is beyond the spread."""
        return f"it differs from {self.old}: {'; '.join(self.beyond)}" if self.beyond else ""

    def __str__(self) -> str:
        compared = f"compared with {self.old}: {'; '.join(self.figures)}"
        return "\n".join(line for line in (compared, self.refusal, *self.examples) if line)


def changed(old: Recipe, new: Recipe) -> str:
    """Return what of the weights or their precision two recipes do not share; empty where that is all the same."""

    def weights(recipe: Recipe) -> dict[str, object]:
        model = recipe.model
        where = {} if model.revision else {"path": model.path}
        named: dict[str, object] = {"model": model.id, "revision": model.revision, "file": model.file, **where}
        return named | {key: recipe.serve.args.get(key) for key in PRECISION}

    before, after = weights(old), weights(new)
    names = dict.fromkeys((*before, *after))
    return ", ".join(
        f"{name} {before.get(name)} to {after.get(name)}" for name in names if before.get(name) != after.get(name)
    )


def compare(baseline: Baseline, new: Answers) -> Comparison:
    """Return how the answers and the speed of a new release differ from those of the old one."""
    old, same = baseline.old, not baseline.changed
    names = [question.name for question in baseline.questions]
    pairs = list(zip(names, old.answers, new.answers, strict=True))
    weights = "the same weights" if same else f"other weights ({baseline.changed})"
    figures = [f"{weights}, {len(pairs)} questions"]
    beyond = [*_lost(pairs), *_window(old, new)]
    for figure, wrong in (_agreement(pairs), _logprobs(pairs)):
        figures += [figure] if figure else []
        beyond += [wrong] if wrong and same else []
    for figure, wrong in _pace(old.speeds, new.speeds):
        figures.append(figure)
        beyond += [wrong] if wrong and same else []
    return Comparison(old.release, tuple(figures), tuple(beyond), tuple(_examples(pairs)))


Pairs = Sequence[tuple[str, tuple[Answer, ...], tuple[Answer, ...]]]
"""Name of each question, with the old release's answers and the new one's."""


def _lost(pairs: Pairs) -> Iterator[str]:
    """Yield what the old release answers each time, and the new one never: at all, or in its form."""
    for name, old, new in pairs:
        if all(answer.problem for answer in new) and not any(answer.problem for answer in old):
            yield f"{shown(name)}: no answer: {new[0].problem}"
            continue
        forms = {answer.form for answer in old if not answer.problem}
        got = {answer.form for answer in new if not answer.problem}
        if len(forms) == 1 and got and not forms & got and forms != {"text"}:
            yield f"{shown(name)}: {', '.join(sorted(got))} in place of a {next(iter(forms))}: {shown(new[0].text)}"


def _window(old: Answers, new: Answers) -> Iterator[str]:
    if old.window and new.window and new.window < old.window:
        yield f"the context is {new.window} tokens, that of the old release {old.window}"


def _agreement(pairs: Pairs) -> tuple[str, str]:
    """Return the mean share of an answer that two releases have in common, and that it is too small."""
    itself = [_common(*two) for _, old, _ in pairs for two in combinations(_given(old), 2)]
    other = [_common(*two) for _, old, new in pairs for two in product(_given(old), _given(new))]
    if not itself or not other:
        return "", ""
    own, share = fmean(itself), fmean(other)
    figure = f"answers have the first {share:.0%} in common, those of the old release {own:.0%}"
    return figure, figure if share < own - PARTED else ""


def _logprobs(pairs: Pairs) -> tuple[str, str]:
    """Return the mean difference of the log-probabilities at the question with the largest, and that it is too large.

    Nothing where one of the two releases gives none.
    """
    itself = [_mean_distance(combinations(_given(old), 2)) for _, old, _ in pairs]
    other = [_mean_distance(product(_given(old), _given(new))) for _, old, new in pairs]
    spreads, differences = ([value for value in values if value is not None] for values in (itself, other))
    if not spreads or not differences:
        return "", ""
    spread, difference = max(spreads), max(differences)
    figure = f"log-probabilities differ by up to {difference:.3f}, those of the old release by up to {spread:.3f}"
    return figure, figure if difference > max(SPREADS * spread, LOGPROB) else ""


def _given(answers: Iterable[Answer]) -> list[Answer]:
    return [answer for answer in answers if not answer.problem]


def _mean_distance(pairs: Iterable[tuple[Answer, Answer]]) -> float | None:
    known = [distance for pair in pairs if (distance := _distance(*pair)) is not None]
    return fmean(known) if known else None


def _pieces(answer: Answer) -> list[str]:
    return [token.text for token in answer.tokens] or answer.text.split()


def _common(one: Answer, other: Answer) -> float:
    """Return the share of two answers before they part, 0 to 1; by words where an engine gives no tokens."""
    both = [*zip_longest(_pieces(one), _pieces(other))]
    return next((at for at, (mine, its) in enumerate(both) if mine != its), len(both)) / len(both) if both else 1.0


def _distance(one: Answer, other: Answer) -> float | None:
    """Return the mean difference of the log-probabilities up to where the answers part, in nats. None without a token.

    At each place the likely tokens of one are compared, also those that it has not chosen: the chosen one of a sure
    answer has a probability of 1 with nearly any weights.
    """
    differences = list[float]()
    for mine, its in zip(one.tokens, other.tokens, strict=False):
        here, there = ({token.text: token.logprob, **token.near} for token in (mine, its))
        least = min(there.values())
        differences.append(fmean(_differs(value, there.get(text), least) for text, value in here.items()))
        if mine.text != its.text:
            break
    return fmean(differences) if differences else None


def _differs(value: float, other: float | None, least: float) -> float:
    """Return a difference; at least that to `least` where the other one is less likely than the tokens it names."""
    return abs(value - other) if other is not None else max(value - least, 0.0)


def _pace(old: Sequence[Speed], new: Sequence[Speed]) -> Iterator[tuple[str, str]]:
    """Yield each figure of speed, and that the new release is slower: only where both were measured at equal load."""
    if not old or not new:
        return
    had, beside = (median(speed.beside for speed in speeds) for speeds in (old, new))
    was_tok_s, tok_s = ([speed.tok_s for speed in speeds] for speeds in (old, new))
    was_first_s, first_s = ([speed.first_s for speed in speeds] for speeds in (old, new))
    load = f"beside {beside:g} requests" if beside == had else f"beside {beside:g} and {had:g} requests"
    figure = f"{median(tok_s):.1f} tokens/s, the old release {median(was_tok_s):.1f}, {load}"
    lasts = SHORT_S * median(was_tok_s) <= SPEED_TOKENS
    slow = lasts and _apart(tok_s, was_tok_s) and median(tok_s) < SLOWER * median(was_tok_s)
    yield figure, figure if slow and beside == had else ""
    figure = f"first token after {median(first_s):.3f} s, the old release {median(was_first_s):.3f} s"
    later = _apart([value + LATER_S for value in was_first_s], first_s)
    late = later and SLOWER * median(first_s) > median(was_first_s)
    yield figure, figure if late and beside == had else ""


def _apart(low: Sequence[float], high: Sequence[float]) -> bool:
    """Return whether one sample is below another, each without the one that reaches farthest into the other."""
    return sorted(low)[max(len(low) - 2, 0)] < sorted(high)[min(1, len(high) - 1)]


def _examples(pairs: Pairs) -> Iterator[str]:
    """Yield answers that differ from the old release's, side by side."""
    parted = [(name, _given(old), _given(new)) for name, old, new in pairs]
    differing = [(name, old[0], new[0]) for name, old, new in parted if old and new and old[0].text != new[0].text]
    for name, before, after in differing[:EXAMPLES]:
        yield f"{shown(name)}: the old release: {shown(before.text)}; the new one: {shown(after.text)}"
