"""Commands of a preflight, exactly, and their output."""

from __future__ import annotations

import pytest

from sparkops.node.network import commands
from sparkops.node.network.commands import RDMA_OPTIONS, Perftest, RankRendezvous

END = Perftest("roceP2p1s0f1", port=1, gid_index=5, link=1)


def test_ping() -> None:
    assert str(commands.ping("192.168.100.10", "192.168.100.11")) == (
        "ping -n -c 2 -i 0.2 -W 1 -I 192.168.100.10 192.168.100.11"
    )


def test_ping_with_packets_of_9000_bytes_in_one_piece() -> None:
    assert str(commands.ping("192.168.100.10", "192.168.100.11", 9000)) == (
        "ping -n -M do -s 8972 -c 2 -i 0.2 -W 1 -I 192.168.100.10 192.168.100.11"
    )


def test_both_ends_of_a_bandwidth_test() -> None:
    perftest = "ib_write_bw -d roceP2p1s0f1 -i 1 -x 5 -p 18516 -D 2 -F --report_gbits"

    assert str(commands.bandwidth_server(END)) == f"timeout 7 {perftest}"
    assert str(commands.bandwidth_client(END, "192.168.101.10")) == (
        f"timeout 7 sh -c '{commands.CALL_SCRIPT}' sparkops {perftest} 192.168.101.10"
    )


def test_the_ranks_connect_with_the_engine_s_network_and_rights_and_no_more() -> None:
    arguments = RankRendezvous(1, ("192.168.100.10", "192.168.100.11"), 29501, (6379,))

    command = commands.rendezvous("sha256:1", RDMA_OPTIONS, arguments, b"print()")

    printed = (
        '{"rank": 1, "addresses": ["192.168.100.10", "192.168.100.11"], "port": 29501, '
        '"ports": [6379], "patience_s": 7.0}'
    )
    assert str(command) == (
        "docker run --rm --interactive --network=host --user=10841:10841 --cap-drop=ALL "
        "--security-opt=no-new-privileges --pids-limit=8192 "
        "--device=/dev/infiniband --ulimit=memlock=-1:-1 "
        f"--entrypoint=python sha256:1 - '{printed}'"
    )
    assert (command.stdin, command.timeout_s) == (b"print()", 10.0)


# The frame and columns are perftest's (linux-rdma/perftest); the figures are those of mac-amd-cuda-llm-cluster, where
# each twin carried 92.56 while both were busy. Not captured by us.
WRITE_BW = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : rocep1s0f0
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 5
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1059284          0.00               92.56              0.176549
---------------------------------------------------------------------------------------
"""


def test_the_average_is_the_bandwidth() -> None:
    assert commands.bandwidth(WRITE_BW) == 92.56


def test_tries_that_found_nobody_come_before_the_result() -> None:
    assert commands.bandwidth("Couldn't connect to 192.168.100.10:18515\n" * 3 + WRITE_BW) == 92.56


@pytest.mark.parametrize(
    "printed", ["", "Couldn't connect to 192.168.100.10:18515\n", WRITE_BW.replace("Gb/sec", "MB/sec")]
)
def test_no_result_is_no_bandwidth(printed: str) -> None:
    with pytest.raises(ValueError, match=r"^no result in "):
        commands.bandwidth(printed)


@pytest.mark.parametrize("printed", ["", "{}", "[]", "null", "Traceback (most recent call last):"])
def test_another_answer_than_that_of_the_rendezvous_is_refused(printed: str) -> None:
    with pytest.raises(ValueError, match=r"^(unexpected answer|Expecting value)"):
        commands.rendezvous_report(printed)
