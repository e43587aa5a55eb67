"""Captured outputs; their README says where each comes from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

DIRECTORY = Path(__file__).parent / "captured"


@pytest.fixture(scope="session")
def captured() -> Callable[[str], str]:
    def read(name: str) -> str:
        return (DIRECTORY / name).read_bytes().decode()  # read_text() would end a line at each return of a progress bar

    return read
