"""Reasons to refuse a demonstration, and its removal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.errors import SparkopsError
from sparkops.names import NODE_LABEL
from sparkops.node.agents.commands import PEER_PORT
from sparkops.operator.demo.machine import REMOVE, MachineFacts, foreign, refusals
from sparkops.operator.demo.record import DemoRecord
from sparkops.operator.demo.scene import NODE, Ports

DIRECTORY = Path("/home/ops/.local/state/sparkops/demo")
FREE = MachineFacts(
    "linux", "box", {"OperatingSystem": "Debian GNU/Linux 13", "SecurityOptions": ["name=seccomp"], "Name": "box"}
)


ME, OTHER = 1000, 1001
RECORD = DemoRecord(str(DIRECTORY), ME)


def refused(machine: MachineFacts, record: DemoRecord | None = None, *, exists: bool = False) -> SparkopsError:
    [error] = refusals(machine, Ports(), DIRECTORY, record, exists=exists)
    assert error.exit_code == 5
    return error


def test_a_machine_with_docker_and_free_ports_is_not_refused() -> None:
    assert list(refusals(replace(FREE, listening={22, 9104}), Ports(), DIRECTORY, exists=False)) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"CgroupVersion": "1", "CgroupDriver": "cgroupfs", "MemoryLimit": True, "SwapLimit": False},
        {"CgroupVersion": "2", "CgroupDriver": "systemd"},
        {"SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"]},
        {"SecurityOptions": None},
    ],
    ids=["cgroup v1", "cgroup v2", "AppArmor", "no security module"],
)
def test_any_cgroups_and_a_kernel_without_apparmor_are_not_refused(facts: dict[str, object]) -> None:
    machine = replace(FREE, docker={**FREE.docker, **facts})

    assert list(refusals(machine, Ports(), DIRECTORY, exists=False)) == []


@pytest.mark.parametrize(
    ("machine", "words", "step"),
    [
        (replace(FREE, system="darwin"), "needs Linux, got darwin", "on a Linux machine"),
        (replace(FREE, client="podman version 5.4.2"), "`docker` is Podman here", "has Docker Engine too"),
        (replace(FREE, server=["Podman Engine", "Conmon"]), "`docker` is Podman here", "has Docker Engine too"),
        (replace(FREE, docker={"SecurityOptions": ["name=rootless"]}), "rootless Docker", "docker context use default"),
        (replace(FREE, docker={"OperatingSystem": "Docker Desktop"}), "virtual machine", "docker context use default"),
        (
            replace(FREE, docker={"Name": "build-server"}),
            "reports the host name build-server, expected box",
            "unset DOCKER_HOST",
        ),
        (replace(FREE, docker={"SecurityOptions": ["name=userns"]}), "userns-remap", "restart Docker"),
        (replace(FREE, docker={"SecurityOptions": ["name=selinux"]}), "SELinux", "restart Docker"),
    ],
)
def test_the_parts_of_a_fleet_must_be_able_to_run_on_this_machine(machine: MachineFacts, words: str, step: str) -> None:
    error = refused(machine)

    assert words in str(error)
    assert step in error.next_step


def test_a_machine_of_a_fleet_is_refused_with_what_it_has() -> None:
    error = refused(replace(FREE, present={"sparkops-guard", "chat-0123456789-blue-r0"}))

    assert "belongs to a fleet: it has chat-0123456789-blue-r0, sparkops-guard" in str(error)


@pytest.mark.parametrize(("record", "exists"), [(RECORD, True), (RECORD, False), (None, True)])
def test_an_earlier_demonstration_is_removed_first_although_its_directory_or_record_was_deleted(
    record: DemoRecord | None, exists: bool
) -> None:
    error = refused(replace(FREE, present={"sparkops-guard"}, listening={9100}), record, exists=exists)

    assert (str(DIRECTORY) in str(error), error.next_step) == (True, REMOVE)


def test_a_taken_port_leads_to_the_next_free_ones() -> None:
    error = refused(replace(FREE, listening={9102, 9113}))

    assert "9102 (the second release" in str(error)
    assert error.next_step == "sparkops demo --port 9120"


def test_the_port_of_the_guard_cannot_be_chosen() -> None:
    error = refused(replace(FREE, listening={PEER_PORT}))

    assert error.next_step == "Stop the program that listens there."


def test_only_the_guard_of_a_recorded_demonstration_is_removed() -> None:
    ours, theirs = {NODE_LABEL: NODE}, {NODE_LABEL: "spark-1"}

    assert (foreign(None, RECORD, DIRECTORY, ME), foreign(ours, RECORD, DIRECTORY, ME)) == (None, None)
    for labels, record in ((theirs, RECORD), (theirs, None), (ours, None), ({}, RECORD)):
        error = foreign(labels, record, DIRECTORY, ME)
        assert error is not None
        assert error.exit_code == 5


def test_a_guard_of_the_same_node_name_without_a_record_gets_both_next_steps() -> None:
    error = foreign({NODE_LABEL: NODE}, None, DIRECTORY, ME)

    assert error is not None
    assert error.next_step.startswith("sparkops node uninstall demo,")
    assert error.next_step.endswith(f"mkdir -p {DIRECTORY} && {REMOVE}")


def test_the_demonstration_of_another_user_is_removed_by_that_user_or_root() -> None:
    refused = foreign({NODE_LABEL: NODE}, RECORD, DIRECTORY, OTHER)

    assert refused is not None
    assert refused.next_step == f"As that user or as root: {REMOVE}"
    assert foreign({NODE_LABEL: NODE}, RECORD, DIRECTORY, 0) is None


@pytest.mark.parametrize("labels", [None, {NODE_LABEL: NODE}])
def test_a_machine_with_engines_of_other_services_keeps_them(labels: dict[str, str] | None) -> None:
    assert foreign(labels, RECORD, DIRECTORY, ME, {"demo"}) is None
    error = foreign(labels, RECORD, DIRECTORY, ME, {"demo", "chat"})
    assert error is not None
    assert "other than the demonstration's: chat" in str(error)
