"""The requests of the smoke suite: bodies, long prompts, and the comparison of answers. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkops.config.recipe import Recipe
from sparkops.config.smoke import Smoke, SmokeQuestion
from sparkops.engines import ENGINES
from sparkops.engines.load import Load
from sparkops.exchange import Request

COMPLETIONS = "/v1/chat/completions"
EMBEDDINGS = "/v1/embeddings"
RERANK = "/v1/rerank"
MODELS = "/v1/models"
METRICS = "/metrics"
LOOK_S = 10.0  # for what needs no model
LETTERS_PER_TOKEN = 4.5  # of English with a tokenizer of today
THOUGHTS = 1024

SWITCHES = {
    "deepseek_v3": "thinking",
    "gemma4": "enable_thinking",
    "glm45": "enable_thinking",
    "granite": "thinking",
    "holo2": "thinking",
    "hunyuan_a13b": "enable_thinking",
    "nemotron_v3": "enable_thinking",
    "qwen3": "enable_thinking",
}
"""By reasoning-parser: the key of chat_template_kwargs that switches thinking on and off."""

SENTENCES = (
    "The harbour office opened at {hour} and closed early on day {n}.",
    "On page {n} the clerk wrote that the wind had turned to the north.",
    "Boat number {n} brought {hour} crates of apples and a new rope.",
    "Nobody asked about the old map, which hung beside door {n}.",
    "It rained for {hour} hours, and the market of week {n} was moved indoors.",
)
SECRETS = ("marigold", "saltbush", "juniper", "cinnamon", "hawthorn", "lavender", "rosemary", "sycamore", "foxglove")


@dataclass
class Round:
    """One pass over a server, and results of its checks that others use. `number` is 1 for the first pass."""

    recipe: Recipe
    number: int = 1
    alone: bool = True
    restarts: Callable[[], int] = int
    """Returns how often the engine has restarted since the suite began."""
    window: int | None = None
    before: Load | None = None
    answers: dict[str, str] = field(default_factory=dict)

    @property
    def smoke(self) -> Smoke:
        """The tuning of the checks."""
        return self.recipe.probe.smoke

    @property
    def switch(self) -> str | None:
        """The key that switches the model's thinking, if any."""
        return SWITCHES.get(str(self.recipe.serve.args.get("reasoning-parser")))

    @property
    def silent(self) -> Mapping[str, Any]:
        """Keys of a request to answer without thinking."""
        if self.smoke.extra is not None:
            return self.smoke.extra
        return {"chat_template_kwargs": {self.switch: False}} if self.switch else {}

    @property
    def switches_off(self) -> bool:
        """Whether `silent` switches thinking off."""
        kwargs = self.silent.get("chat_template_kwargs")
        return isinstance(kwargs, Mapping) and False in (kwargs.get(key) for key in set(SWITCHES.values()))

    @property
    def thinking(self) -> Mapping[str, Any]:
        """Keys of a request to answer after thinking."""
        if self.smoke.reasoning.extra is not None:
            return self.smoke.reasoning.extra
        return {"chat_template_kwargs": {self.switch: True}} if self.switch else {}

    @property
    def room(self) -> int:
        """Tokens for thoughts, in addition to those of an answer."""
        if self.smoke.thinking_tokens is not None:
            return self.smoke.thinking_tokens
        return THOUGHTS if self.recipe.serve.args.get("reasoning-parser") and not self.switches_off else 0


def chat(run: Round, prompt: str, max_tokens: int, **more: Any) -> Request:
    """Return a chat request of one user message, answered greedily."""
    limit = max_tokens + run.room
    body = {
        "model": run.recipe.service,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": min(limit, run.window // 2) if run.window else limit,  # the prompt needs the other half
        "temperature": 0,
        **run.silent,
        **more,
    }
    return Request(COMPLETIONS, body, timeout_s=run.smoke.timeout_s)


def embed(run: Round, texts: Sequence[str]) -> Request:
    """Return a request for the vectors of some texts."""
    body = {"model": run.recipe.service, "input": list(texts), "encoding_format": "float"}
    return Request(EMBEDDINGS, body, timeout_s=run.smoke.timeout_s)


def rank(run: Round, query: str, documents: Sequence[str]) -> Request:
    """Return a request to rank some documents by a query."""
    body = {"model": run.recipe.service, "query": query, "documents": list(documents)}
    return Request(RERANK, body, timeout_s=run.smoke.timeout_s)


def first(run: Round, text: str = "") -> Request:
    """Return a short request of the recipe's task, of `text` if given."""
    if run.recipe.serve.task == "embedding":
        return embed(run, [text or "1"])
    if run.recipe.serve.task == "rerank":
        return rank(run, "1", [text or "1"])
    return chat(run, text, 1) if text else question(run, run.smoke.questions.prompts[0])


def question(run: Round, question: SmokeQuestion, words: int = 0) -> Request:
    """Return a question, after so many words of other text."""
    text = question.prompt
    if words and run.window:
        words = min(words, run.window // 4)
    if words:
        text = f"{filler(words * 6, run.number)}\n\nForget the text above. {question.prompt}"
    return chat(run, text, question.max_tokens, **question.extra)


def secret(run: Round) -> str:
    """Return the word that is hidden in this pass."""
    return SECRETS[(run.number - 1) % len(SECRETS)]


def haystack(run: Round, tokens: int) -> str:
    """Return a long text with the secret word in its middle. Its first words differ in each pass: no cache has it."""
    text = filler(int(tokens * LETTERS_PER_TOKEN), run.number)
    middle = text.index(". ", len(text) // 2) + 2 if ". " in text[len(text) // 2 :] else len(text)
    return (
        f"{text[:middle]}The secret word is {secret(run)}. {text[middle:]}\n\n"
        "What is the secret word? Answer with the word only."
    )


def filler(letters: int, seed: int) -> str:
    """Return about so many letters of English, without a repeated sentence."""
    lines: list[str] = [f"Journal of the harbour, volume {seed}."]
    length, n = len(lines[0]), 0
    while length < letters:
        n += 1
        lines.append(SENTENCES[n % len(SENTENCES)].format(n=n + 100 * seed, hour=2 + n % 9))
        length += len(lines[-1]) + 1
    return " ".join(lines)


def too_long(run: Round, window: int) -> Request:
    """Return a request of more tokens than the window: every word is at least one."""
    return first(run, "a " * (window + 16))


def holds(expect: str, text: str) -> bool:
    """Return whether the text contains `expect` as separate words, in any case and spacing."""
    parts = re.findall(r"\w+|[^\w\s]", _folded(expect))
    body = r"\s*".join(map(re.escape, parts))
    return re.search(rf"(?<![a-z0-9]){body}(?![a-z0-9])", _folded(text)) is not None


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text.casefold())


def window_of(recipe: Recipe) -> int | None:
    """Return the context of the recipe in tokens, where it is a number; engines also take 32k, 32K and auto."""
    given = str(recipe.serve.args.get(ENGINES[recipe.engine].window_flag, ""))
    factor = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20}.get(given[-1:], 1)
    digits = given if factor == 1 else given[:-1]
    return int(digits) * factor if digits.isdecimal() else None


def needle_tokens(recipe: Recipe, window: int | None) -> int:
    """Return the length of the long prompt, at most half of the window."""
    tokens = recipe.probe.smoke.needle.tokens
    return tokens if window is None else min(tokens, window // 2)
