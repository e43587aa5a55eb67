"""Status with containerd's image store: of tests/real/test_status_socket.py the test that reads containers."""

import pytest

from tests.real.test_status_socket import test_status_asks_each_guard_once_and_runs_nothing_on_the_nodes

__all__ = ["test_status_asks_each_guard_once_and_runs_nothing_on_the_nodes"]

pytestmark = pytest.mark.fleet
