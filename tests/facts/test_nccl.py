"""What NCCL says about its network. The lines are those that facts/nccl.py quotes; none was captured here."""

from __future__ import annotations

import pytest

from sparkops.facts import nccl

ROCE = "n1:12:34 [0] NCCL INFO NET/IB : Using [0]rocep1s0f1:1/RoCE [1]roceP2p1s0f1:1/RoCE"
SOCKETS = "n1:12:34 [0] NCCL INFO NET/Socket : Using [0]enp1s0f1np1:10.0.0.1<0>"
FELL_BACK = "it fell back to sockets: NET/Socket : Using [0]enp1s0f1np1:10.0.0.1<0>"


@pytest.mark.parametrize(
    ("env", "promised"), [(("A=1", "NCCL_NET=IB"), True), (("NCCL_NET=Socket",), False), ((), False)]
)
def test_roce_is_promised_by_the_environment(env: tuple[str, ...], promised: bool) -> None:
    assert nccl.promised(env) is promised


@pytest.mark.parametrize(
    ("log", "rank", "problem"),
    [
        (f"loading\n{ROCE}\nserving", True, ""),
        (f"loading\n{SOCKETS}\nserving", True, FELL_BACK),
        (f"{ROCE}\n{SOCKETS}", True, FELL_BACK),
        (SOCKETS, False, FELL_BACK),
        ("", False, ""),
        ("loading", True, "its log does not show NET/IB, which RoCE was promised to be"),
    ],
    ids=[
        "RoCE",
        "sockets",
        "another rank has sockets",
        "a worker has sockets",
        "a worker is silent",
        "rank 0 is silent",
    ],
)
def test_a_pair_that_goes_over_sockets_is_found(log: str, rank: bool, problem: str) -> None:
    assert nccl.problem(log, rank=rank) == problem
