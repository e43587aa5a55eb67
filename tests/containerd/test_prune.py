"""Prune with containerd's image store: every test of tests/real/test_prune.py."""

from tests.real.test_prune import *  # noqa: F403
