"""Swaps with containerd's image store: one of each mode, a rollback, and one that fails."""

import pytest

from tests.real.test_swap import (
    test_across_and_beside_lose_no_request_and_a_rollback_needs_no_load as test_across_and_beside,
)
from tests.real.test_swap import (
    test_in_place_returns_to_the_old_release_by_itself as test_in_place,
)

__all__ = ["test_across_and_beside", "test_in_place"]

pytestmark = pytest.mark.fleet
