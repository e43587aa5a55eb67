"""Swaps with containerd's image store: one of each mode, a rollback, and one that fails."""

import pytest

from tests.real.service import Service
from tests.real.test_swap import (
    test_across_and_beside_lose_no_request_and_a_rollback_needs_no_load as test_across_and_beside,
)
from tests.real.test_swap import test_in_place_returns_to_the_old_release_by_itself as in_place

__all__ = ["test_across_and_beside"]

pytestmark = pytest.mark.fleet


@pytest.mark.matrix
def test_in_place(service: Service) -> None:
    """The mode changes neither image nor container, which are all that the store concerns."""
    in_place(service)
