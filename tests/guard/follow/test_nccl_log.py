"""Which network NCCL uses: logs of two ranks on two nodes (tests/captured), joined by vLLM's --nnodes and by Ray.

They were captured over sockets. Those over RoCE are made from them, with the line that guard/follow/nccl_log.py quotes.
"""

from __future__ import annotations

import re

import pytest

from sparkops.guard.follow import nccl_log
from tests.places import CAPTURED

USING = re.compile(r"NET/Socket : Using .*")
ROCE = "NET/IB : Using [0]rocep1s0f1:1/RoCE [1]roceP2p1s0f1:1/RoCE [RO]; OOB enp1s0f1np1:10.0.0.1<0>"
FELL_BACK = "it fell back to sockets: NET/Socket : Using [0]eth0:172.17.0."


def sockets(name: str) -> str:
    return (CAPTURED / f"vllm-0.23.0-cuda-tp2-{name}.log").read_text(encoding="utf-8")


def problem(log: str, ranks: int) -> str:
    return nccl_log.problem(log.splitlines(), ranks)


def roce(name: str) -> str:
    return USING.sub(ROCE, sockets(name))


@pytest.mark.parametrize(
    ("env", "promised"), [(("A=1", "NCCL_NET=IB"), True), (("NCCL_NET=Socket",), False), ((), False)]
)
def test_roce_is_promised_by_the_environment(env: tuple[str, ...], promised: bool) -> None:
    assert nccl_log.promised(env) is promised


@pytest.mark.parametrize(
    ("name", "index", "ray", "expected"),
    [("mp-rank0", 0, False, 1), ("mp-rank1", 1, False, 1), ("ray-rank0", 0, True, 2), ("ray-rank1", 1, True, 0)],
)
def test_every_rank_shows_its_network_in_the_log_that_prints_it(
    name: str, index: int, ray: bool, expected: int
) -> None:
    ranks = nccl_log.printed(index, 2, ray=ray)

    assert ranks == expected
    assert problem(sockets(name), ranks).startswith(FELL_BACK if expected else "")
    assert bool(problem(sockets(name), ranks)) is bool(expected)
    assert problem(roce(name), ranks) == ""


def test_with_ray_one_rank_over_roce_is_not_enough() -> None:
    first, second = USING.finditer(sockets("ray-rank0"))
    log = sockets("ray-rank0")
    mixed = log[: first.start()] + ROCE + log[first.end() :]
    silent = mixed.replace(second[0], "another line")

    assert problem(mixed, 2) == f"it fell back to sockets: {second[0]}"
    assert problem(silent, 2) == "its log shows NET/IB, which NCCL_NET=IB promises, for 1 rank, expected 2"


def test_a_rank_that_prints_no_network_is_found() -> None:
    assert problem("loading", 1) == "its log shows NET/IB, which NCCL_NET=IB promises, for 0 ranks, expected 1"
    assert problem("loading", 0) == ""


def test_a_line_that_is_printed_twice_is_one_rank() -> None:
    line = f"node-1:151:151 [0] NCCL INFO {ROCE}"

    assert problem(f"{line}\n{line}", 1) == ""
    assert "for 1 rank, expected 2" in problem(f"{line}\n{line}", 2)
