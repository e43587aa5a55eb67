"""What every test is: a unit test, unless it is marked `fleet` or `vllm`. Unit tests need no network and no Docker."""

from __future__ import annotations

import pytest
from hypothesis import settings

UNIT_TIMEOUT_S = 60
settings.register_profile("unit", deadline=None)
settings.load_profile("unit")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "unit: every test that is not marked otherwise")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.get_closest_marker("fleet") and not item.get_closest_marker("vllm"):
            item.add_marker(pytest.mark.unit)
            item.add_marker(pytest.mark.timeout(UNIT_TIMEOUT_S))
