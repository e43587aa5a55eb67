"""Prune with containerd's image store: every test of tests/real/test_prune.py."""

import pytest

from tests.real.test_prune import *  # noqa: F403

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]
