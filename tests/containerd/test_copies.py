"""Copies with containerd's image store: every test of tests/real/test_copies.py."""

import pytest

from tests.real.test_copies import *  # noqa: F403

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]
