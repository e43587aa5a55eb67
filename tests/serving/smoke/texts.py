"""Texts for tests: what models write in several languages, and what broken engines say with HTTP 200."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from pathlib import Path

GOOD = {file.stem: file.read_text() for file in sorted((Path(__file__).parent / "texts").glob("*.txt"))}

CHOSEN = random.Random(1)


def letters(pick: Callable[[], str], count: int) -> str:
    return "".join(pick() for _ in range(count))


SCRIPTS = "\u0446\u0e01\u05e2\u7684\u0627\ud55c\u092c\u03bb\u0561\u178f\u0b95\u10d0"
PIECES = ["the", "ing", " foo", "();", "ph", *SCRIPTS, *SCRIPTS]
BAD = {
    "!!!!": ("!" * 200, "one character fills the answer"),
    "an answer that ends in !!!!": (GOOD["english"][:300] + "!" * 60, "one character fills the answer"),
    "unicode noise": (letters(lambda: chr(CHOSEN.randrange(0x100, 0x3000)), 400), "unprintable characters"),
    "ascii noise": (letters(lambda: CHOSEN.choice(string.printable[:94]), 600), "the text is noise"),
    "tokens at random": (letters(lambda: CHOSEN.choice(PIECES), 300), "the text mixes scripts"),
    "replacement characters": ("Well \ufffd\ufffd and \ufffd" * 20, "unprintable characters"),
    "a sentence in a loop": ("I am a cat. " * 40, "the text repeats itself"),
    "a word in a loop": ("the the " * 60, "the text repeats itself"),
    "a loop after a good start": (GOOD["english"][:250] + " and the sea" * 40, "the text repeats itself"),
    "a loop in Chinese": (GOOD["chinese"][:4] * 60, "the text repeats itself"),
    "a slow loop": (
        " ".join(f"{n} and so the keeper went up" for n in "abcdefghijklmnopqrstuvwxyz"),
        "the text repeats itself",
    ),
    "groups that repeat": (
        " ".join(CHOSEN.choice(["red", "blue", "green", "grey"]) + ["", ","][n % 7 == 0] for n in range(150)),
        "the text repeats itself",
    ),
    "numbers": (" ".join(str(CHOSEN.randrange(10000)) for _ in range(150)), "the text has too few words"),
    "nothing": ("", "the text is too short"),
    "one word": ("Okay.", "the text is too short"),
    "spaces": (" " * 300, "the text repeats itself"),
}
