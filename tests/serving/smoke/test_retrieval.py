"""Models that embed texts or rank documents: the judgements, and the requests of their recipes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sparkops.config.recipe import Recipe
from sparkops.exchange import Reply, Request
from sparkops.serving.smoke import checks, coverage, openai, retrieval
from sparkops.serving.smoke.openai import Unusable
from sparkops.serving.smoke.prompts import EMBEDDINGS, RERANK, Round
from sparkops.serving.smoke.retrieval import ANSWERS, PAIRS
from tests.examples import recipe
from tests.serving.smoke.test_checks import play, says

Vectors = Callable[[str], list[float]]
Scores = Callable[[str, str], float]
TEXTS = [text for pair in PAIRS for text in pair]


def of(task: str, **smoke: Any) -> Recipe:
    return recipe(serve={"task": task, "args": {"max-model-len": 4096}}, probe={"smoke": smoke})


def angle(degrees: float, length: float = 1.0) -> list[float]:
    return [length * math.cos(math.radians(degrees)), length * math.sin(math.radians(degrees))]


def by_pair(text: str) -> list[float]:
    """The two texts of a pair are 10 degrees apart, and 40 from the next pair; lengths differ."""
    number = TEXTS.index(text)
    return angle(number // 2 * 50 + number % 2 * 10, length=1 + number)


def embeds(vector: Vectors, alone: Vectors | None = None) -> Callable[[Request], Reply]:
    """A server that embeds; it lists the vectors backwards, with their place."""

    def answer(request: Request) -> Reply:
        assert request.path == EMBEDDINGS
        assert request.body is not None
        texts = request.body["input"]
        one = alone if alone and len(texts) == 1 else vector
        items = [{"index": number, "embedding": one(text)} for number, text in enumerate(texts)]
        return says({"data": items[::-1]})

    return answer


def ranks(score: Scores, alone: float | None = None) -> Callable[[Request], Reply]:
    """A server that ranks, best first."""

    def answer(request: Request) -> Reply:
        assert request.path == RERANK
        assert request.body is not None
        query, documents = request.body["query"], request.body["documents"]
        scores = {number: score(query, document) for number, document in enumerate(documents)}
        if alone is not None and len(documents) == 1:
            scores = {0: alone}
        best = sorted(scores, key=lambda number: -scores[number])
        return says({"results": [{"index": number, "relevance_score": scores[number]} for number in best]})

    return answer


def knows(query: str, document: str) -> float:
    return 0.9 if (query, document) in ANSWERS else 0.1


def test_texts_of_one_meaning_are_nearest() -> None:
    finding = play(retrieval.embeddings(Round(of("embedding"))), embeds(by_pair))

    assert str(finding) == "8 texts, 2 dimensions"


@pytest.mark.parametrize(
    ("vector", "alone", "finding"),
    [
        (lambda _: angle(5), None, "a text is not nearest to the one of the same meaning"),
        (lambda text: angle(TEXTS.index(text) * 170), None, "a text is not nearest to the one of the same meaning"),
        (lambda text: by_pair(text)[: 1 + TEXTS.index(text) % 2], None, "the vectors have another length"),
        (lambda _: [0.0, 0.0], None, "a vector has no direction"),
        (lambda _: [math.nan, 1.0], None, "a vector has values that are no numbers"),
        (by_pair, lambda _: angle(9), "a text alone has another vector than in a batch"),
        (by_pair, lambda _: [1.0], "a text alone has another vector than in a batch"),
        (by_pair, lambda _: [0.0, 0.0], "a vector has no direction"),
        (by_pair, lambda _: [math.nan, 1.0], "a vector has values that are no numbers"),
    ],
)
def test_vectors_that_are_noise_are_found(vector: Vectors, alone: Vectors | None, finding: str) -> None:
    found = play(retrieval.embeddings(Round(of("embedding"))), embeds(vector, alone))

    assert found.problem == finding


def test_a_recipe_may_require_a_length() -> None:
    found = play(retrieval.embeddings(Round(of("embedding", embeddings={"dimensions": 1024}))), embeds(by_pair))

    assert str(found) == "the vectors have another length; expected 1024 dimensions; got 2"


def test_a_text_without_a_vector_is_found() -> None:
    found = play(retrieval.embeddings(Round(of("embedding"))), lambda _: says({"data": []}))

    assert str(found) == "texts and vectors differ in number; expected 8 vectors; got 0"


def test_a_text_alone_has_one_vector() -> None:
    def twice(request: Request) -> Reply:
        texts = (request.body or {})["input"]
        places = [0, 1] if len(texts) == 1 else range(len(texts))
        return says({"data": [{"index": n, "embedding": by_pair(TEXTS[n])} for n in places]})

    found = play(retrieval.embeddings(Round(of("embedding"))), twice)

    assert str(found) == "texts and vectors differ in number; expected 1 vectors; got 2"


def test_the_document_that_answers_is_first() -> None:
    finding = play(retrieval.rerank(Round(of("rerank"))), ranks(knows))

    assert str(finding) == "4 queries, the last with scores from 0.100 to 0.900"


@pytest.mark.parametrize(
    ("score", "alone", "finding"),
    [
        (lambda *_: 0.5, None, "'What is the capital of Hungary?' is not answered by the first document"),
        (
            lambda query, document: 1 - knows(query, document),
            None,
            "'What is the capital of Hungary?' is not answered by the first document",
        ),
        (lambda *_: math.nan, None, "a score is no number"),
        (knows, 0.8, "a document alone has another score than among others"),
        (knows, math.nan, "a document alone has another score than among others"),
    ],
)
def test_scores_that_are_noise_are_found(score: Scores, alone: float | None, finding: str) -> None:
    assert play(retrieval.rerank(Round(of("rerank"))), ranks(score, alone)).problem == finding


def test_a_document_without_a_score_is_found() -> None:
    one = {"results": [{"index": 0, "relevance_score": 1.0}]}
    found = play(retrieval.rerank(Round(of("rerank"))), lambda _: says(one))

    assert str(found) == "documents and scores differ; expected 4 scores; got 1"


@pytest.mark.parametrize("body", [{}, {"data": [{"index": 0}]}, {"results": [{"index": 0}]}, [], "x"])
def test_another_answer_is_no_answer(body: Any) -> None:
    for read in (openai.vectors, openai.scores):
        with pytest.raises(Unusable, match="not an OpenAI answer"):
            read(says(body))


@pytest.mark.parametrize(("task", "own"), [("embedding", "embeddings"), ("rerank", "rerank")])
def test_a_task_has_its_own_check_and_none_of_those_that_chat(task: str, own: str) -> None:
    planned = {check.name: check for check in coverage.planned(of(task))}

    assert {name for name, check in planned.items() if check.runs} == {
        "health",
        "version",
        "models",
        "warm_up",
        own,
        "negatives",
        "restarts",
    }
    assert planned["questions"].why == f"serve.task is {task}"
    assert {check.name for check in coverage.planned(coverage.light(of(task))) if check.runs} == {"health", own}


@pytest.mark.parametrize(
    ("task", "path", "first"),
    [
        ("embedding", EMBEDDINGS, {"model": "chat", "input": ["1"], "encoding_format": "float"}),
        ("rerank", RERANK, {"model": "chat", "query": "1", "documents": ["1"]}),
    ],
)
def test_the_other_checks_send_requests_of_the_task(task: str, path: str, first: Mapping[str, Any]) -> None:
    sent: list[Request] = []

    def answer(request: Request) -> Reply:
        sent.append(request)
        body = request.body or {}
        status = 404 if body["model"] != "chat" else 400 if len(str(body)) > 4096 else 200
        return says({}, status)

    run = Round(of(task), window=4096)
    found = [play(coverage.CHECKS[name].ask(run), answer) for name in ("warm_up", "negatives")]

    assert [finding.problem for finding in found] == ["", ""]
    assert {request.path for request in sent} == {path}
    assert sent[0].body == first
    assert checks.warm_up is coverage.CHECKS["warm_up"].ask
