"""Text without meaning: fluent English, and garbage as from broken kernels. Equal seeds give equal texts."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator


def _listed(text: str, between: str | None = None) -> list[str]:
    return text.split(between)


NOUNS = _listed(
    "river harbour lantern teacher garden bridge letter market engine window forest painter valley kitchen island "
    "station captain library mountain orchard village doctor railway compass blanket notebook traveller workshop "
    "shepherd meadow carpenter lighthouse fisherman baker chimney musician staircase archive gardener cathedral "
    "neighbour courtyard festival merchant clock"
)
ADJECTIVES = _listed(
    "quiet narrow golden patient ancient bright distant gentle heavy curious wooden silver northern careful empty "
    "famous little honest hidden warm crooked proud modest sudden faithful green stubborn cheerful winding pale "
    "remarkable ordinary busy lonely polished clever"
)
VERBS = _listed(
    "followed carried watched remembered repaired crossed admired painted measured visited opened described "
    "discovered sheltered welcomed borrowed answered gathered guarded imagined noticed surrounded reached mended "
    "trusted ignored praised copied lifted questioned"
)
ADVERBS = _listed(
    "slowly carefully often quietly later together suddenly gladly patiently usually almost never always twice "
    "eventually thoughtfully"
)
PLACES = _listed(
    "near the|beyond the|beside the|behind the|above the|along the|across the|inside the|towards the|under the",
    "|",
)
TIMES = _listed(
    "In the morning|After the storm|Every winter|Long ago|On most evenings|Before sunrise|During the summer|"
    "For many years|At the end of the day|Now and then",
    "|",
)
LINKS = _listed("and while because although until so")
SYMBOLS = "\u00a4\u2593\u263c\u0416\u4e9e\u2560\ufffd\u25ca\u00b6\u2020\u0e12\u16a0"

PIECE = re.compile(r"\s*\w{1,8}|\s*[^\w\s]|\s+")


def pieces(text: str) -> list[str]:
    """Return the tokens of a text, which joined are the text."""
    return PIECE.findall(text)


def fluent(seed: str, count: int) -> list[str]:
    """Return English of exactly `count` tokens, with a full stop at the end if possible."""
    chosen = random.Random(seed)  # noqa: S311 - the text is the same every time
    made: list[str] = []
    while len(made) < count:
        made += pieces((" " if made else "") + _sentence(chosen))
    return [*made[: count - 1], "."] if count > 1 else made[:count]


def _sentence(chosen: random.Random) -> str:
    first = _clause(chosen)
    shape = chosen.randrange(4)
    if shape == 0:
        text = f"{chosen.choice(TIMES)} {first}"
    elif shape == 1:
        text = f"{first}, {chosen.choice(LINKS)} {_clause(chosen)}"
    else:
        text = f"{first} {chosen.choice(PLACES)} {_noun(chosen)}"
    return text[0].upper() + text[1:] + "."


def _clause(chosen: random.Random) -> str:
    adverb = f"{chosen.choice(ADVERBS)} " if chosen.random() < 0.5 else ""
    return f"the {_noun(chosen)} {adverb}{chosen.choice(VERBS)} the {_noun(chosen)}"


def _noun(chosen: random.Random) -> str:
    return f"{chosen.choice(ADJECTIVES)} {chosen.choice(NOUNS)}"


def bangs(count: int) -> list[str]:
    """Return the output of an engine whose logits are NaN."""
    return ["!"] * count


def noise(seed: str, count: int) -> list[str]:
    """Return the output of an engine with damaged weights."""
    return list(_noise(random.Random(seed), count))  # noqa: S311


def _noise(chosen: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        yield "".join(_unreadable(chosen) for _ in range(chosen.randint(1, 4)))


def _unreadable(chosen: random.Random) -> str:
    return chosen.choice(SYMBOLS) if chosen.random() < 0.7 else chr(chosen.randint(1, 31))
