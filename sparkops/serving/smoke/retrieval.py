"""The checks of the smoke suite for models that embed texts or rank documents. Pure, as serving/smoke/checks.py."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, isfinite, sqrt

from sparkops.serving.smoke import openai, prompts
from sparkops.serving.smoke.checks import Steps, one
from sparkops.serving.smoke.openai import shown
from sparkops.serving.smoke.prompts import Round
from sparkops.serving.smoke.results import CheckFinding

Vector = Sequence[float]

PAIRS = (
    ("How do I reset the password of my account?", "Steps to choose a new password if you forgot the old one."),
    ("What do bees make from nectar?", "Honey is produced in the hive from the nectar of flowers."),
    ("Budapest is the capital of Hungary.", "The Hungarian capital lies on both banks of the Danube."),
    ("The train to the airport leaves every ten minutes.", "There are six departures an hour to the terminal."),
)
"""Texts of which the two of a pair have one meaning, and few words in common."""
ANSWERS = (
    ("What is the capital of Hungary?", "Budapest has been the capital of Hungary since 1873."),
    ("Which gas do plants take from the air?", "Leaves absorb carbon dioxide and release oxygen."),
    ("How long does it take to boil an egg hard?", "After about ten minutes in boiling water the yolk is firm."),
    ("Who wrote the play Hamlet?", "Shakespeare finished the tragedy of the Danish prince around 1600."),
)
"""A query and the document that answers it; the documents of the others do not."""


def embeddings(run: Round) -> Steps:
    """Check that vectors have one length and a direction, that pairs are nearest, and that a batch changes nothing."""
    texts = [text for pair in PAIRS for text in pair]
    batch = openai.vectors((yield from one(prompts.embed(run, texts))))
    if problem := shape(batch, len(texts), run.smoke.embeddings.dimensions):
        return problem
    for number in range(len(texts)):
        nearest = max((other for other in range(len(texts)) if other != number), key=lambda n: cosine(batch, number, n))
        if nearest != number ^ 1:  # the two of a pair follow each other
            return CheckFinding(
                "a text is not nearest to the one of the same meaning", shown(texts[number ^ 1]), shown(texts[nearest])
            )
    single = openai.vectors((yield from one(prompts.embed(run, texts[:1]))))
    if problem := shape(single, 1, run.smoke.embeddings.dimensions):
        return problem
    alone = single[0]
    same = cosine((batch[0], alone), 0, 1) if len(alone) == len(batch[0]) else 0.0
    if same < run.smoke.embeddings.min_same:
        expected = f"a cosine of at least {run.smoke.embeddings.min_same:g}"
        return CheckFinding("a text alone has another vector than in a batch", expected, f"{same:.3f}")
    return CheckFinding(note=f"{len(texts)} texts, {len(alone)} dimensions")


def shape(vectors: Sequence[Vector], count: int, dimensions: int | None) -> CheckFinding | None:
    """Return what is wrong with the form of the vectors of `count` texts; None if nothing is."""
    if len(vectors) != count:
        return CheckFinding("texts and vectors differ in number", f"{count} vectors", f"{len(vectors)}")
    lengths = sorted({len(vector) for vector in vectors})
    if len(lengths) != 1 or (dimensions and lengths != [dimensions]):
        expected = f"{dimensions} dimensions" if dimensions else "one length for all"
        return CheckFinding("the vectors have another length", expected, ", ".join(map(str, lengths)))
    if not all(map(isfinite, (value for vector in vectors for value in vector))):
        return CheckFinding("a vector has values that are no numbers", "finite values", "NaN or infinity")
    if not all(map(any, vectors)):
        return CheckFinding("a vector has no direction", "values other than 0", "zeros")
    return None


def cosine(vectors: Sequence[Vector], first: int, second: int) -> float:
    """Return the cosine of the angle between two of the vectors, which are not zero."""
    one_of, other = vectors[first], vectors[second]
    product = fsum(a * b for a, b in zip(one_of, other, strict=True))
    return product / (sqrt(fsum(a * a for a in one_of)) * sqrt(fsum(b * b for b in other)))


def rerank(run: Round) -> Steps:
    """Check that the document that answers a query has the highest score, and that others change its score little."""
    documents = [document for _, document in ANSWERS]
    lowest = highest = 0.0
    for place, (query, document) in enumerate(ANSWERS):
        ranked = openai.scores((yield from one(prompts.rank(run, query, documents))))
        if sorted(ranked) != [*range(len(documents))]:
            return CheckFinding("documents and scores differ", f"{len(documents)} scores", f"{len(ranked)}")
        if not all(map(isfinite, ranked.values())):
            return CheckFinding("a score is no number", "finite scores", "NaN or infinity")
        best = max(ranked, key=lambda number: ranked[number])
        lowest, highest = min(ranked.values()), max(ranked.values())
        if best != place or lowest == highest:
            got = "equal scores" if lowest == highest else shown(documents[best])
            return CheckFinding(f"{query!r} is not answered by the first document", shown(document), got)
    query, document = ANSWERS[-1]
    alone = openai.scores((yield from one(prompts.rank(run, query, [document])))).get(0)
    if alone is None or not abs(alone - highest) <= run.smoke.rerank.max_difference * max(1.0, abs(highest)):
        expected = f"{highest:.3f}, within {run.smoke.rerank.max_difference:g}"
        return CheckFinding("a document alone has another score than among others", expected, f"{alone}")
    return CheckFinding(note=f"{len(ANSWERS)} queries, the last with scores from {lowest:.3f} to {highest:.3f}")
