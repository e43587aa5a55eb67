"""Reasons to refuse a demonstration, and its removal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.command import Command
from sparkops.demo.machine import REMOVE, MachineFacts, foreign, refusals, stays
from sparkops.demo.scene import NODE, Ports
from sparkops.errors import SparkopsError
from sparkops.guard_client.commands import NODE_LABEL, PEER_PORT
from sparkops.prune.plan import Removal

DIRECTORY = Path("/home/ops/.local/state/sparkops/demo")
FREE = MachineFacts(
    "linux", "box", {"OperatingSystem": "Debian GNU/Linux 13", "SecurityOptions": ["name=seccomp"], "Name": "box"}
)


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
        (replace(FREE, docker={"Name": "build-server"}), "reports the host name build-server, expected box"),
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


@pytest.mark.parametrize("labels", [None, {NODE_LABEL: NODE}])
def test_a_machine_with_engines_of_other_services_keeps_them(labels: dict[str, str] | None) -> None:
    assert foreign(labels, {"demo"}, exists=True) is None
    error = foreign(labels, {"demo", "chat"}, exists=True)
    assert error is not None
    assert "other than the demonstration's: chat" in str(error)


@pytest.mark.parametrize(
    ("kind", "name", "kept"),
    [
        ("image", "sparkops/demo:1, sparkops-candidate/demo:1", False),
        ("image", "sparkops/guard:1", False),
        ("image", "sparkops/122b:1", True),
        ("image", "sparkops/guard:0", True),
        ("image", "sha256:1", False),
        ("volume", "sparkops-trusted-gateway-1-2", False),
        ("volume", "sparkops-trusted-demo-x-1-2", True),
        ("volume", "sparkops-cache-demo-1", False),
        ("volume", "sparkops-cache-122b-1", True),
        ("volume", "sparkops-state", False),
        ("firewall", "table inet sparkops", False),
        ("container", "sparkops-guard", False),
    ],
)
def test_images_and_volumes_of_others_stay(kind: str, name: str, kept: bool) -> None:
    before = {(NODE, "image", "sparkops/guard:0"), (NODE, "firewall", "table inet sparkops")}

    assert stays(Removal(NODE, kind, name, 0, Command(("true",))), before) is kept
