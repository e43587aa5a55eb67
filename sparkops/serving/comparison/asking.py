"""Ask a release the questions of a comparison, one after another, and measure the speed of a stream between them.

Only one request of it is open at a time on the release that serves, so that its clients wait for no more than one more.
The new release gets as many streams beside the measured one as the old one had requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import median
from typing import Any

from requests import Session

from sparkops.config.recipe import Recipe
from sparkops.exchange import Reply, Request
from sparkops.serving.comparison.answers import (
    LOGPROBS,
    ROUNDS,
    SPEED_TOKENS,
    Answer,
    Answers,
    Baseline,
    Question,
    Speed,
    read,
)
from sparkops.serving.smoke import claims, openai, prompts
from sparkops.serving.smoke.client import Client, load_now
from sparkops.serving.smoke.prompts import Round

SPEEDS = 2
"""Samples of the speed in each round."""
MOST_BESIDE = 8
"""Streams beside the measured one. Where the old release had more requests, the speeds are not at equal load."""
COMPANION_TOKENS = 4 * SPEED_TOKENS
Show = Callable[[str], None]


@dataclass
class Asking:
    """One release and how it is reached. `open` returns a session connected to its rank 0."""

    release: str
    recipe: Recipe
    open: Callable[[], Session]
    cancel: threading.Event = field(default_factory=threading.Event)
    show: Show = lambda _: None
    plain: bool = False
    """Whether it refuses a request for log-probabilities."""

    def __post_init__(self) -> None:
        self.client = Client(self.open, self.cancel)

    def answers(self, questions: Sequence[Question], beside: int | None = None) -> Answers:
        """Ask every question ROUNDS times. `beside`: streams beside a measured one; None: clients send theirs.

        Raises Interrupted, ConnectionLost.
        """
        asked = [list[Answer]() for _ in questions]
        speeds, total = list[Speed](), ROUNDS * len(questions)
        for turn in range(ROUNDS):
            for number, question in enumerate(questions):
                self.show(f"comparing: {turn * len(questions) + number + 1} of {total} answers")
                asked[number].append(self._ask(question))
            speeds += [speed for _ in range(SPEEDS) for speed in self._speeds(beside)]
        return Answers(
            release=self.release,
            window=self._window(),
            answers=tuple(map(tuple, asked)),
            speeds=tuple(speeds),
        )

    def _ask(self, question: Question) -> Answer:
        """Ask once; without log-probabilities where the server refuses them."""
        reply = self._send(question.body)
        if reply.status == 400 and not self.plain:
            self.plain = True
            reply = self._send(question.body)
            self.plain = reply.status == 200
        return read(reply, question.body)

    def _send(self, body: Mapping[str, Any]) -> Reply:
        if self.plain:
            body = {key: value for key, value in body.items() if key not in LOGPROBS}
        request = Request(prompts.COMPLETIONS, body, timeout_s=self.recipe.probe.smoke.timeout_s)
        (reply,) = self.client.send((request,))
        return reply

    def warm(self) -> None:
        """Ask for a stream like those that are measured. Raises Interrupted, ConnectionLost."""
        run = Round(self.recipe, alone=False)
        self.client.send((claims.stream_request(run, run.smoke.text.prompt, SPEED_TOKENS),))

    def _speeds(self, beside: int | None) -> Iterator[Speed]:
        """Yield the speed of one stream, unless it was not whole or the load beside it is unknown."""
        before = load_now(self.open)
        if beside is None and before is None:
            return
        run = Round(self.recipe, alone=False)
        prompt = run.smoke.text.prompt
        measured = claims.stream_request(run, prompt, SPEED_TOKENS)
        others = [claims.stream_request(run, f"{number}. {prompt}", COMPANION_TOKENS) for number in range(beside or 0)]
        reply, *_ = self.client.send((replace(measured, after_s=0.2 if others else 0.0), *others))
        try:
            stream = openai.stream(reply)
        except openai.Unusable:
            return
        tok_s = claims.decode_tok_s(stream)
        if tok_s is not None and isfinite(tok_s):
            now = beside if beside is not None else before.running + before.waiting if before else 0
            yield Speed(tok_s=tok_s, first_s=stream.arrivals[0], beside=now)

    def _window(self) -> int | None:
        (reply,) = self.client.send((Request(prompts.MODELS, timeout_s=prompts.LOOK_S),))
        try:
            return next((card.window for card in openai.cards(reply) if card.window), None)
        except openai.Unusable:
            return None


def of_new(asking: Asking, baseline: Baseline) -> Answers:
    """Return the answers of a new release, its speed at the load that the old one had.

    A stream comes first that nothing is measured of: an engine may compile a kernel when it first needs it.
    """
    asking.warm()
    had = round(median(speed.beside for speed in baseline.old.speeds)) if baseline.old.speeds else 0
    return asking.answers(baseline.questions, min(had, MOST_BESIDE))
