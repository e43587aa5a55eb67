"""What a started engine is asked before it may have traffic, and how much of each answer must be right."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from sparkops.config.fields import Argument, Line, Positive, Section

Share = Annotated[float, Field(ge=0, le=1)]
Tokens = Annotated[int, Field(ge=1, le=8192)]
Count = Annotated[int, Field(ge=0)]

MOST_AT_ONCE = 7  # connections: a node gets at most 8 channels over one SSH connection


class SmokeQuestion(Section):
    """A question whose answer is known."""

    ask: Line
    """The question, sent as one user message at temperature 0."""
    expect: Line
    """Text that the answer must contain as words of its own; upper and lower case and spaces are the same."""
    max_tokens: Tokens = 64
    """Length of the answer in tokens."""
    extra: dict[str, Argument] = {}
    """Further keys of the request body, such as chat_template_kwargs."""


def general_questions() -> list[SmokeQuestion]:
    """What any general chat model knows, one of each kind: a sum, a fact, letters, a search, a form."""
    return [
        SmokeQuestion(ask="What is 17*23? Answer with the number only.", expect="391"),
        SmokeQuestion(ask="What is the capital of Hungary? Answer with one word.", expect="Budapest"),
        SmokeQuestion(ask='Write the word "spark" backwards. Answer with one word.', expect="kraps"),
        SmokeQuestion(ask="Which prime number comes right after 89? Answer with the number only.", expect="97"),
        SmokeQuestion(ask='Repeat this JSON exactly and write nothing else: {"a":1}', expect='{"a":1}'),
    ]


class SmokeCheck(Section):
    """A check with nothing to tune."""

    enabled: bool | None = None
    """`false` switches it off (say why beside it), `true` on; left out, the recipe's other keys decide."""


class VersionCheck(SmokeCheck):
    """/version answers."""

    expect: Line | None = None
    """What the version must begin with; left out, any version will do."""


class WarmUpCheck(SmokeCheck):
    """One request that may compile for minutes. Nothing of it is judged but the status 200."""

    timeout_s: Positive = 300.0
    """Seconds that it may take."""


class QuestionsCheck(SmokeCheck):
    """Questions whose answers are known. Fluent nonsense fails here."""

    ask: Annotated[list[SmokeQuestion], Field(min_length=1)] = Field(default_factory=general_questions)
    """The questions; left out, five that any general chat model can answer."""
    wrong: Count = 1
    """How many may be answered wrongly."""

    @model_validator(mode="after")
    def _some_right(self) -> QuestionsCheck:
        if self.wrong >= len(self.ask):
            raise ValueError(f"wrong below {len(self.ask)}, the number of questions")
        return self


class TextCheck(SmokeCheck):
    """Statistics of a longer text. Garbage with HTTP 200 fails here: `!!!!`, noise, loops."""

    ask: Line = "Write a short story about a lighthouse keeper in one paragraph of about 200 words."
    """What is asked for."""
    max_tokens: Tokens = 200
    """Length of the text in tokens."""
    characters: Count = 200
    """Characters that it must have at least."""
    printable: Share = 0.97
    """Share of its characters that must be printable."""
    words: Share = 0.6
    """Share of its characters that must be letters or spaces."""
    run: Annotated[int, Field(ge=2)] = 8
    """A character that stands so often in a row is a fault; spaces and the dashes of tables are not counted."""
    packed_low: Share = 0.25
    """Packed by zlib the text must keep more than this share of its size: a loop keeps less."""
    packed_high: Share = 0.85
    """Packed by zlib the text must keep less than this share of its size: noise keeps more."""
    distinct: Share = 0.6
    """Share of its groups of three words that must be distinct."""
    scripts: Share = 0.85
    """Share of its letters that must belong to its two commonest scripts."""
    logprobs: bool = True
    """Whether the probabilities of the tokens are asked for and judged."""
    mean_logprob: float = -2.5
    """What the mean of the logarithms of the tokens' probabilities must be above."""


class RepeatCheck(SmokeCheck):
    """The questions once more: at temperature 0 the answers are the same. Races and a bad cache fail here."""

    differences: Count = 1
    """How many answers may differ."""


class NeedleCheck(SmokeCheck):
    """A long prompt with one fact in its middle. A fault of prefill or of chunked prefill fails here."""

    tokens: Annotated[int, Field(ge=256, le=1_000_000)] = 8192
    """Length of the prompt in tokens, roughly; at most half of the model's window is used."""


class ConcurrentCheck(SmokeCheck):
    """Questions of mixed lengths at once. Kernels that only fail on some batch shapes fail here."""

    words: Annotated[list[Count], Field(min_length=2, max_length=MOST_AT_ONCE)] = [0, 0, 60, 250, 600, 1200]
    """One request for each number, with so many words of other text before its question."""
    timeout_s: Positive = 120.0
    """Seconds that the slowest may take."""


class StreamingCheck(SmokeCheck):
    """An answer in pieces. A proxy that buffers and a stream that is cut fail here."""

    ask: Line = "Count from one to forty in words, separated by commas."
    """What is asked for."""
    max_tokens: Tokens = 96
    """Length of the answer in tokens."""
    chunks: Annotated[int, Field(ge=1)] = 5
    """Pieces that must come at least."""
    first_s: Positive = 10.0
    """Seconds until the first piece."""
    gap_s: Positive = 10.0
    """Seconds between two pieces."""


class ToolsCheck(SmokeCheck):
    """A question that wants a tool. A tool-call parser that does not fit the model fails here."""

    max_tokens: Tokens = 256
    """Length of the answer in tokens."""


class StructuredCheck(SmokeCheck):
    """An answer that is held to a JSON schema."""

    max_tokens: Tokens = 256
    """Length of the answer in tokens."""


class ReasoningCheck(SmokeCheck):
    """Thoughts and answer come in fields of their own."""

    max_tokens: Tokens = 512
    """Length of thoughts and answer in tokens; thoughts that take all of them are no fault."""
    extra: dict[str, Argument] | None = None
    """Keys of the request that make the model think; left out, what serve.args.reasoning-parser implies."""


class SpeedCheck(SmokeCheck):
    """Decode speed of one stream. A silent fall to a slow kernel fails here."""

    floor: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of expected.tok_s that must be reached."""
    max_tokens: Annotated[int, Field(ge=32, le=8192)] = 256
    """Length of the measured text in tokens."""


class NegativesCheck(SmokeCheck):
    """What must be refused is refused: an unknown model, a prompt that is too long, a caller without the key."""

    too_long: bool = True
    """Whether a prompt longer than the model's window is sent."""


class MetricsCheck(SmokeCheck):
    """/metrics counts what was generated, and nothing runs at the end. A hung engine that answers fails here."""

    settle_s: Positive = 5.0
    """Seconds after which nothing may run any more."""


class Smoke(Section):
    """The checks of the smoke suite; each can be tuned, or switched off with `enabled: false`."""

    timeout_s: Positive = 120.0
    """Seconds that one request may take."""
    extra: dict[str, Argument] | None = None
    """Keys of every chat request; left out, what switches thinking off for serve.args.reasoning-parser."""
    thinking_tokens: Count | None = None
    """Room for thoughts in every answer; left out, 1024 for a model whose thinking cannot be switched off."""
    health: SmokeCheck = SmokeCheck()
    version: VersionCheck = VersionCheck()
    models: SmokeCheck = SmokeCheck()
    warm_up: WarmUpCheck = WarmUpCheck()
    questions: QuestionsCheck = QuestionsCheck()
    text: TextCheck = TextCheck()
    repeat: RepeatCheck = RepeatCheck()
    needle: NeedleCheck = NeedleCheck()
    concurrent: ConcurrentCheck = ConcurrentCheck()
    streaming: StreamingCheck = StreamingCheck()
    tools: ToolsCheck = ToolsCheck()
    structured: StructuredCheck = StructuredCheck()
    reasoning: ReasoningCheck = ReasoningCheck()
    speed: SpeedCheck = SpeedCheck()
    negatives: NegativesCheck = NegativesCheck()
    metrics: MetricsCheck = MetricsCheck()
    restarts: SmokeCheck = SmokeCheck()
