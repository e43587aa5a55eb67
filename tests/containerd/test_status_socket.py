"""Status with containerd's image store: every test of tests/real/test_status_socket.py."""

from tests.real.test_status_socket import *  # noqa: F403
