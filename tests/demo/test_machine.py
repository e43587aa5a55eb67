"""Reasons to refuse a demonstration, and its removal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.demo.machine import REMOVE, MachineFacts, foreign, refusals
from sparkops.demo.scene import NODE, Ports
from sparkops.errors import SparkopsError
from sparkops.guard_client.commands import NODE_LABEL, PEER_PORT

DIRECTORY = Path("/home/ops/.local/state/sparkops/demo")
FREE = MachineFacts("linux", {"OperatingSystem": "Debian GNU/Linux 13", "SecurityOptions": ["name=seccomp"]})


def refused(machine: MachineFacts, *, exists: bool = False) -> SparkopsError:
    [error] = refusals(machine, Ports(), DIRECTORY, exists=exists)
    assert error.exit_code == 5
    return error


def test_a_machine_with_docker_and_free_ports_is_not_refused() -> None:
    assert list(refusals(replace(FREE, listening={22, 9104}), Ports(), DIRECTORY, exists=False)) == []


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (replace(FREE, system="darwin"), "needs Linux, got darwin"),
        (replace(FREE, docker={"SecurityOptions": ["name=rootless"]}), "rootless Docker"),
        (replace(FREE, docker={"OperatingSystem": "Docker Desktop"}), "virtual machine"),
    ],
)
def test_containers_must_share_the_network_of_this_machine(machine: MachineFacts, words: str) -> None:
    error = refused(machine)

    assert words in str(error)
    assert error.next_step


def test_a_machine_of_a_fleet_is_refused_with_what_it_has() -> None:
    error = refused(replace(FREE, present={"sparkops-guard", "chat-0123456789-blue-r0"}))

    assert "belongs to a fleet: it has chat-0123456789-blue-r0, sparkops-guard" in str(error)


def test_an_earlier_demonstration_is_removed_first() -> None:
    error = refused(replace(FREE, present={"sparkops-guard"}, listening={9100}), exists=True)

    assert (str(DIRECTORY) in str(error), error.next_step) == (True, REMOVE)


def test_a_taken_port_leads_to_the_next_free_ones() -> None:
    error = refused(replace(FREE, listening={9102, 9113}))

    assert "9102 (the second release" in str(error)
    assert error.next_step == "sparkops demo --port 9120"


def test_the_port_of_the_guard_cannot_be_chosen() -> None:
    error = refused(replace(FREE, listening={PEER_PORT}))

    assert error.next_step == "Stop the program that listens there."


def test_only_the_guard_of_a_demonstration_of_this_user_is_removed() -> None:
    ours, theirs = {NODE_LABEL: NODE}, {NODE_LABEL: "spark-1"}

    assert (foreign(None, exists=True), foreign(ours, exists=True)) == (None, None)
    for labels, exists in ((theirs, True), (theirs, False), (ours, False), ({}, True)):
        error = foreign(labels, exists=exists)
        assert error is not None
        assert error.exit_code == 5
