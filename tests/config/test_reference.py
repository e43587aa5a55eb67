"""The reference of a model as Markdown."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from sparkops.config.fields import Line, Name, Section, Value
from sparkops.config.reference import described, reference


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Wheel(Section):
    """One wheel."""

    inches: Annotated[int, Field(ge=10, le=30)] = 26
    """Its size."""
    spokes: Annotated[float, Field(gt=0)] | None = None


class Bicycle(Section):
    """What rides."""

    name: Name
    """What it is called, a|b."""
    colour: Colour
    """Of its
    frame."""
    bell: bool = True
    """Whether it rings."""
    use: Literal["road", "hill"] = "road"
    """What for."""
    owner: Line | None
    """Whose it is."""
    wheels: list[Wheel] = [Wheel(), Wheel(inches=20)]
    """Two of them."""
    spare: Wheel = Wheel()
    notes: dict[Name, Value] = {}
    """What else."""


NAME = "a name of at most 63 lower-case letters, digits, dots and dashes"
EXPECTED = f"""\
# Bicycle

What rides.

| key | type | default | meaning |
| --- | --- | --- | --- |
| `name` | {NAME} | required | What it is called, a\\|b. |
| `colour` | `red` or `blue` | required | Of its frame. |
| `bell` | true or false | `true` | Whether it rings. |
| `use` | `road` or `hill` | `"road"` | What for. |
| `owner` | one line of text or null | required | Whose it is. |
| `wheels` | list: mapping | `[{{}}, {{"inches": 20}}]` | Two of them. |
| `spare` | mapping | - | One wheel. |
| `notes` | mapping: {NAME} to text without $(...) | `{{}}` | What else. |

## wheels[]

One wheel.

| key | type | default | meaning |
| --- | --- | --- | --- |
| `inches` | whole number from 10 to 30 | `26` | Its size. |
| `spokes` | number above 0 | - |  |

## spare

One wheel.

As in `wheels[]`: `inches`, `spokes`.
"""


def test_a_reference_has_one_table_for_each_model() -> None:
    assert reference(Bicycle) == EXPECTED


def test_what_nobody_described_is_empty_and_a_section_is_described_by_itself() -> None:
    class Bare(BaseModel):
        wheel: Wheel
        weight: float

    assert dict(described(Bare)) == {"wheel": "One wheel.", "weight": ""}
