"""The questions that the stand-in answers. Each rule returns the answer to a prompt, or None."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable

NEAR = 600  # characters at the end of a long prompt, with its question

CITIES = (
    "france:Paris|germany:Berlin|italy:Rome|spain:Madrid|portugal:Lisbon|hungary:Budapest|poland:Warsaw|"
    "austria:Vienna|greece:Athens|norway:Oslo|sweden:Stockholm|finland:Helsinki|denmark:Copenhagen|"
    "iceland:Reykjavik|ireland:Dublin|england:London|the united kingdom:London|belgium:Brussels|"
    "the netherlands:Amsterdam|switzerland:Bern|czechia:Prague|the czech republic:Prague|romania:Bucharest|"
    "bulgaria:Sofia|turkey:Ankara|russia:Moscow|ukraine:Kyiv|egypt:Cairo|kenya:Nairobi|japan:Tokyo|china:Beijing|"
    "south korea:Seoul|india:New Delhi|thailand:Bangkok|australia:Canberra|canada:Ottawa|mexico:Mexico City|"
    "brazil:Brasília|argentina:Buenos Aires|chile:Santiago|peru:Lima|the united states:Washington, D.C."
)
CAPITALS = dict(pair.split(":", 1) for pair in CITIES.split("|"))
OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "plus": operator.add, "-": operator.sub, "minus": operator.sub,
    "*": operator.mul, "x": operator.mul, "\u00d7": operator.mul, "times": operator.mul, "multiplied by": operator.mul,
}  # fmt: skip

QUOTE, UNQUOTE = "[\"'“‘`]?", "[\"'”’`]?"  # noqa: RUF001
CAPITAL = re.compile(r"capital(?: city)? of ((?:the )?[a-z ]+?)(?=\s*(?:[?.,!;:]|$|\n| in one | with one ))")
SUM = re.compile(r"(\d{1,12})\s*(\+|-|\*|\u00d7|x|plus|minus|times|multiplied by)\s*(\d{1,12})")
DIVISION = re.compile(r"(\d{1,12})\s*(?:/|÷|divided by)\s*(\d{1,12})")
PRIME = re.compile(r"prime.*?(?:after|than|above|follows|following) (\d{1,9})")
SINGLE = re.compile(
    r"(?:reply|answer|respond) (?:\w+ )?(?:with|in) (?:exactly |only |just )*(?:the |one |a )*(?:single )?word:? *"
    rf"{QUOTE}(?!only\b)(\w+){UNQUOTE}\s*[.!]?\s*$",
    re.IGNORECASE,
)
BRIEF = re.compile(r"\b(?:one|single) word\b|\bonly\b|\bjust\b", re.IGNORECASE)
ECHO = re.compile(r"json|echo|repeat|verbatim|exactly", re.IGNORECASE)
BACKWARDS = re.compile(r"[^.?!\n]*(?:revers|backward)[^.?!\n]*", re.IGNORECASE)
ASKING = (
    "a and answer backward backwards exactly give in is it just letter letters me of only order output please print "
    "reply return reverse reversed reversing say sequence spell spelled spelling spelt string text the then this to "
    "what when with word write you"
)
NOT_REVERSED = frozenset(ASKING.split())
STATED = re.compile(
    rf"\b(?:the|my|your) ([a-z0-9][a-z0-9 '-]{{1,50}}?)(?: is| was|:):? {QUOTE}"
    r"([^\s.,;?!\"'”’`][^.,;?!\n\"'”’`]{0,60}?)"  # noqa: RUF001
    r"(?= and | but |[.,;?!\n\"'”’`]|$)",  # noqa: RUF001
    re.IGNORECASE,
)
WANTED = re.compile(r"\b(?:what|which|repeat|tell|name|give|state|recall|find|reply|answer)\b", re.IGNORECASE)


def known(prompt: str) -> str | None:
    """Return the answer to a prompt; None for an unknown question."""
    question = prompt[-NEAR:].strip()
    if found := needle(prompt):
        return found
    return next((said for rule in RULES if (said := rule(question)) is not None), None)


def needle(prompt: str) -> str | None:
    """Return X of an earlier sentence: "The secret word is X." and, later, "What is the secret word?"."""
    best = ("", "")
    for stated in STATED.finditer(prompt):
        tail = prompt[max(stated.end(), len(prompt) - NEAR) :].lower()
        if len(stated[1]) > len(best[0]) and stated[1].lower() in tail and WANTED.search(tail):
            best = (stated[1], stated[2].strip())
    return best[1] or None


def _single(question: str) -> str | None:
    found = SINGLE.search(question)
    return found[1] if found else None


def _echo(question: str) -> str | None:
    """Return a JSON value in the prompt, unchanged."""
    if not ECHO.search(question):
        return None
    for at in (found.start() for found in re.finditer(r"[{\[]", question)):
        try:
            _, length = json.JSONDecoder().raw_decode(question[at:])
        except ValueError:
            continue
        return question[at : at + length]
    return None


def _capital(question: str) -> str | None:
    for country in reversed(CAPITAL.findall(question.lower())):
        name = country.strip()
        if city := CAPITALS.get(name) or CAPITALS.get(f"the {name}"):
            return city if BRIEF.search(question) else f"The capital of {_title(name)} is {city}."
    return None


def _title(country: str) -> str:
    return country.title().replace("The ", "the ")


def _sum(question: str) -> str | None:
    found = SUM.search(question)
    return str(OPERATORS[found[2]](int(found[1]), int(found[3]))) if found else None


def _division(question: str) -> str | None:
    found = DIVISION.search(question)
    return f"{int(found[1]) / int(found[2]):g}" if found and int(found[2]) else None


def _reverse(question: str) -> str | None:
    """Reverse the quoted word, else the first one that is not part of the phrase of the question."""
    asked = BACKWARDS.search(question)
    if not asked:
        return None
    quoted = re.findall(r"[\"'“‘`](\w+)[\"'”’`]", asked[0])  # noqa: RUF001
    words = [word for word in re.findall(r"\w+", asked[0]) if word.lower() not in NOT_REVERSED]
    return next((word[::-1] for word in (*quoted, *words)), None)


def _prime(question: str) -> str | None:
    found = PRIME.search(question.lower())
    return str(next_prime(int(found[1]))) if found else None


def next_prime(number: int) -> int:
    """Return the first prime above a number."""
    number += 1
    while number < 2 or any(number % each == 0 for each in range(2, math.isqrt(number) + 1)):
        number += 1
    return number


RULES = (_single, _echo, _capital, _prime, _reverse, _sum, _division)
