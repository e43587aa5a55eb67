"""Copies with containerd's image store: every test of tests/real/test_copies.py."""

from tests.real.test_copies import *  # noqa: F403
