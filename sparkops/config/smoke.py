"""Settings of the smoke suite: the requests to a started engine and the limits of their results."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from sparkops.config.fields import Argument, Line, Positive, Section

Share = Annotated[float, Field(ge=0, le=1)]
Tokens = Annotated[int, Field(ge=1, le=8192)]
Count = Annotated[int, Field(ge=0)]

MOST_AT_ONCE = 7  # connections: a node gets at most 8 channels over one SSH connection


class SmokeQuestion(Section):
    """A question with a known answer."""

    prompt: Line
    """The question, sent as one user message at temperature 0."""
    expect: Line
    """Text that the answer must contain as separate words; case and spaces are ignored."""
    max_tokens: Tokens = 64
    """Length of the answer in tokens."""
    extra: dict[str, Argument] = {}
    """Further keys of the request body, such as chat_template_kwargs."""


def general_questions() -> list[SmokeQuestion]:
    """What any general chat model knows, one of each kind: a sum, a fact, letters, a search, a form."""
    return [
        SmokeQuestion(prompt="What is 17*23? Answer with the number only.", expect="391"),
        SmokeQuestion(prompt="What is the capital of Hungary? Answer with one word.", expect="Budapest"),
        SmokeQuestion(prompt='Write the word "spark" backwards. Answer with one word.', expect="kraps"),
        SmokeQuestion(prompt="Which prime number comes right after 89? Answer with the number only.", expect="97"),
        SmokeQuestion(prompt='Repeat this JSON exactly and write nothing else: {"a":1}', expect='{"a":1}'),
    ]


class SmokeCheck(Section):
    """A check of the smoke suite."""

    enabled: bool | None = None
    """`true` or `false` switches the check on or off; if absent, the recipe's other keys decide."""


class VersionCheck(SmokeCheck):
    """/version returns the version."""

    expect: Line | None = None
    """Required prefix of the version; if absent, any version passes."""


class WarmUpCheck(SmokeCheck):
    """One request that may compile for minutes; only its status 200 is checked."""

    timeout_s: Positive = 300.0
    """Timeout of the request in seconds."""


class QuestionsCheck(SmokeCheck):
    """Questions with known answers; detects fluent nonsense."""

    prompts: Annotated[list[SmokeQuestion], Field(min_length=1)] = Field(default_factory=general_questions)
    """The questions; if absent, five that any general chat model can answer."""
    max_wrong: Count = 1
    """Maximum number of wrong answers."""

    @model_validator(mode="after")
    def _some_right(self) -> QuestionsCheck:
        if self.max_wrong >= len(self.prompts):
            raise ValueError(f"max_wrong below {len(self.prompts)}, the number of questions")
        return self


class EmbeddingsCheck(SmokeCheck):
    """Vectors of texts in pairs; each must be nearest to its partner's, and the same alone and in a batch."""

    dimensions: Annotated[int, Field(ge=1)] | None = None
    """Required length of a vector; if absent, any length that all have in common."""
    min_same: Share = 0.99
    """Minimum cosine of the vectors that a text gets alone and in a batch."""


class RerankCheck(SmokeCheck):
    """Queries with documents of which one answers; it must be first, and keep its score without the others."""

    max_difference: Share = 0.05
    """Maximum difference of the scores that a document gets alone and among others."""


class TextCheck(SmokeCheck):
    """Statistics of a longer text; detects garbage with HTTP 200: `!!!!`, noise, loops."""

    prompt: Line = "Write a short story about a lighthouse keeper in one paragraph of about 200 words."
    """Prompt."""
    max_tokens: Tokens = 200
    """Length of the text in tokens."""
    min_characters: Count = 200
    """Minimum length in characters."""
    min_printable: Share = 0.97
    """Minimum share of printable characters."""
    min_words: Share = 0.6
    """Minimum share of letters and spaces."""
    max_run: Annotated[int, Field(ge=2)] = 8
    """Number of equal characters in a row that fails the check; spaces and the dashes of tables do not count."""
    packed_low: Share = 0.25
    """Minimum size after zlib compression, as a share of the text: a loop compresses to less."""
    packed_high: Share = 0.85
    """Maximum size after zlib compression, as a share of the text: noise stays larger."""
    min_distinct: Share = 0.6
    """Minimum share of distinct groups of three words."""
    min_scripts: Share = 0.85
    """Minimum share of letters in the two most common scripts."""
    logprobs: bool = True
    """Whether the probabilities of the tokens are requested and checked."""
    mean_logprob: float = -2.5
    """Minimum of the mean log probability of the tokens."""


class RepeatCheck(SmokeCheck):
    """The questions again, at temperature 0; differing answers detect races and a bad cache."""

    max_differences: Count = 1
    """Maximum number of differing answers."""


class NeedleCheck(SmokeCheck):
    """A long prompt with one fact in its middle; detects faults of prefill and chunked prefill."""

    tokens: Annotated[int, Field(ge=256, le=1_000_000)] = 8192
    """Approximate length of the prompt in tokens; at most half of the model's window."""


class ConcurrentCheck(SmokeCheck):
    """Concurrent questions of mixed lengths; detects kernels that fail on some batch shapes."""

    words: Annotated[list[Count], Field(min_length=2, max_length=MOST_AT_ONCE)] = [0, 0, 60, 250, 600, 1200]
    """One request for each number, with that many words of other text before its question."""
    timeout_s: Positive = 120.0
    """Timeout of each request in seconds."""


class StreamingCheck(SmokeCheck):
    """A streamed answer; detects proxies that buffer and streams that are cut."""

    prompt: Line = "Count from one to forty in words, separated by commas."
    """Prompt."""
    max_tokens: Tokens = 96
    """Length of the answer in tokens."""
    min_chunks: Annotated[int, Field(ge=1)] = 5
    """Minimum number of pieces."""
    first_s: Positive = 10.0
    """Maximum seconds until the first piece."""
    max_gap_s: Positive = 10.0
    """Maximum seconds between two pieces."""


class ToolsCheck(SmokeCheck):
    """A question that needs a tool; detects a wrong tool-call parser."""

    max_tokens: Tokens = 256
    """Length of the answer in tokens."""


class StructuredCheck(SmokeCheck):
    """An answer that must match a JSON schema."""

    max_tokens: Tokens = 256
    """Length of the answer in tokens."""


class ReasoningCheck(SmokeCheck):
    """A question that needs reasoning; reasoning and answer must arrive in separate fields."""

    max_tokens: Tokens = 512
    """Length of reasoning and answer in tokens; reasoning may use all of them."""
    extra: dict[str, Argument] | None = None
    """Keys of the request that enable reasoning; if absent, those of serve.args.reasoning-parser."""


class SpeedCheck(SmokeCheck):
    """Decode speed of one stream; detects a silent fallback to a slow kernel."""

    min_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Minimum speed as a share of expected.tok_s."""
    max_tokens: Annotated[int, Field(ge=32, le=8192)] = 256
    """Length of the measured text in tokens."""


class NegativesCheck(SmokeCheck):
    """Requests that the server must refuse: an unknown model, a prompt that is too long."""

    too_long: bool = True
    """Whether to send a prompt longer than the model's window."""


class MetricsCheck(SmokeCheck):
    """/metrics counts generated tokens, and no request runs at the end; detects a hung engine that still answers."""

    settle_s: Positive = 5.0
    """Seconds after which no request may run."""


class Smoke(Section):
    """Checks of the smoke suite. Each has the key `enabled`; `false` switches it off."""

    timeout_s: Positive = 120.0
    """Timeout of a request in seconds."""
    extra: dict[str, Argument] | None = None
    """Keys of every chat request; if absent, those that disable reasoning for serve.args.reasoning-parser."""
    thinking_tokens: Count | None = None
    """Tokens added to every answer for reasoning; if absent, 1024 for a model whose reasoning cannot be disabled."""
    health: SmokeCheck = SmokeCheck()
    """/health returns 200: a server listens."""
    version: VersionCheck = VersionCheck()
    models: SmokeCheck = SmokeCheck()
    """/v1/models lists the service, with a window of at least the recipe's."""
    warm_up: WarmUpCheck = WarmUpCheck()
    questions: QuestionsCheck = QuestionsCheck()
    embeddings: EmbeddingsCheck = EmbeddingsCheck()
    rerank: RerankCheck = RerankCheck()
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
    """The container has not restarted during the suite."""
