"""The files of the program in the container: whole or not at all, and enough to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkops.config.inventory import Gateway
from sparkops.operator.build.gateway import files
from sparkops.operator.build.gateway import image as render
from sparkops.operator.build.gateway.image import Service


def test_only_the_owner_may_read_a_file(disk: Any) -> None:
    disk.CERTIFICATE.with_name(".tls.pem.new").touch(0o644)  # left by a power cut
    disk.put(disk.CERTIFICATE, "key")

    assert (disk.CERTIFICATE.read_text(), disk.CERTIFICATE.stat().st_mode & 0o777) == ("key", 0o600)


def test_a_start_gives_everything_to_whom_the_files_say(disk: Any) -> None:
    disk.activate({"chat": "be_chat_green"})
    servers, releases = ["", "10.0.0.1:8002", "", "[fd00::2]:8002"], ["", "chat-0", "", "chat-1"]
    disk.remember("be_chat_green", {"release": "chat-1", "servers": servers, "releases": releases})

    disk.compose({})

    assert disk.read(disk.ACTIVE) == "chat be_chat_green\n"
    names = disk.rows(disk.read(disk.RELEASES))
    assert {key: name for key, name in names.items() if name != "-"} == {
        "be_chat_green": "chat-1",
        "be_chat_green/s2": "chat-0",
        "be_chat_green/s4": "chat-1",
    }
    assert disk.read(disk.NEXT).splitlines()[-5:] == [
        "  server s1 127.0.0.1:1 disabled",
        "  server s2 10.0.0.1:8002 check",
        "  server s3 127.0.0.1:1 check disabled",
        "  server s4 [fd00::2]:8002 check",
        "  server-template s 5-17 127.0.0.1:1 check disabled",
    ]
    assert "  server-template s 2-17 127.0.0.1:1 check disabled" in disk.read(disk.NEXT)  # of blue


def test_a_lone_server_has_no_check_of_haproxys_own(disk: Any) -> None:
    disk.remember("be_chat_blue", {"release": "chat-1", "servers": ["10.0.0.1:8001"]})  # as an earlier version kept it

    disk.compose({})

    assert "  server s1 10.0.0.1:8001\n" in disk.read(disk.NEXT)
    names = disk.rows(disk.read(disk.RELEASES))
    assert {key: name for key, name in names.items() if name != "-"} == {
        "be_chat_blue": "chat-1",
        "be_chat_blue/s1": "chat-1",
    }


def test_a_sticky_service_is_found_by_its_file(disk: Any) -> None:
    services = [Service("chat", 8000, sticky=True), Service("embed", 8010)]
    given = render.config(services, Gateway(node="n"), files.load_templates())
    for service in services:
        disk.put(disk.service_file(service.name), given[f"services/{service.name}.cfg"])

    assert disk.services() == ["chat", "embed"]
    assert disk.sticky() == ["chat"]


def test_aliases_are_looked_up_as_their_service(disk: Any) -> None:
    given = render.config([Service("chat", 8000, ("fast", "org/chat"))], Gateway(node="n"), files.load_templates())
    disk.put(disk.service_file("chat"), given["services/chat.cfg"])
    disk.compose({})

    assert disk.aliases("chat") == ["fast", "org/chat"]
    assert disk.rows(disk.read(disk.NAMES)) == {"chat": "chat", "fast": "chat", "org/chat": "chat"}


def test_a_new_service_is_switched_to_nobody(disk: Any) -> None:
    disk.compose({})

    assert disk.read(disk.ACTIVE) == "chat be_down\n"


def test_requests_wait_again_after_a_start_only_where_the_map_says_so(disk: Any) -> None:
    hold = {"mark": "1.2", "until": 1e9, "left_s": 60.0, "longest_s": 540.0, "most": 5}
    disk.put_hold("chat", hold)
    disk.activate({"chat": "be_chat_wait"})
    disk.compose({})
    disk.settle()
    assert (disk.holds(), disk.read(disk.ACTIVE)) == ({"chat": hold}, "chat be_chat_wait\n")

    disk.activate({"chat": "be_chat_blue"})
    disk.compose({})
    disk.settle()
    assert disk.holds() == {}


def test_a_row_that_the_file_has_lost_is_taken_from_what_runs(disk: Any) -> None:
    disk.compose({"chat": "be_chat_blue"})
    disk.settle()
    disk.compose({})

    assert disk.read(disk.ACTIVE) == "chat be_chat_blue\n"


def test_the_file_wins_over_what_runs(disk: Any) -> None:
    disk.activate({"chat": "be_chat_green"})

    disk.compose({"chat": "be_chat_blue"})

    assert disk.read(disk.ACTIVE) == "chat be_chat_green\n"


def test_a_slot_with_every_server_has_no_spare_ones(disk: Any) -> None:
    servers = ["", *(f"10.0.0.{n}:8001" for n in range(1, 17))]
    disk.remember("be_chat_blue", {"release": "chat-1", "servers": servers})

    disk.compose({})

    assert disk.read(disk.NEXT).count("  server s") == 18
    assert disk.read(disk.NEXT).count("server-template") == 1


def test_a_file_is_written_whole_and_seen_by_nobody_else(disk: Any, tmp_path: Path) -> None:
    disk.put(tmp_path / "new" / "file", "text")

    assert [file.name for file in (tmp_path / "new").iterdir()] == ["file"]
    disk.put(tmp_path / "new" / "file", "")
    assert list((tmp_path / "new").iterdir()) == []


def test_one_port_belongs_to_one_service(disk: Any) -> None:
    assert disk.ports() == {8405: "gateway.cfg", 8000: "chat.cfg"}
    disk.put(disk.service_file("twin"), "frontend fe_twin\n  bind :8000\n")

    with pytest.raises(disk.Refused, match=r"port 8000 is in two files: chat\.cfg and twin\.cfg"):
        disk.ports()


def test_the_one_address_has_a_port_of_its_own_and_knows_the_services(disk: Any) -> None:
    rendered = render.config([Service("chat", 8000)], Gateway(node="n", port=8080), files.load_templates())
    disk.put(disk.ONE, rendered["one.cfg"])
    disk.compose({})

    assert disk.ports() == {8405: "gateway.cfg", 8080: "one.cfg", 8000: "chat.cfg"}
    assert disk.read(disk.NAMES) == "chat chat\n"
    assert "frontend fe.one\n" in disk.read(disk.NEXT)
    disk.put(disk.service_file("twin"), "frontend fe_twin\n  bind :8080\n")
    with pytest.raises(disk.Refused, match=r"port 8080 is in two files: one\.cfg and twin\.cfg"):
        disk.ports()


def test_the_digest_changes_with_what_only_a_reload_can_change(disk: Any) -> None:
    digests = {disk.digest()}
    for name in ("gateway.cfg", "one.cfg", "keys", "tls.pem", "services/new.cfg"):
        disk.put(disk.STATE / name, "changed")
        digests.add(disk.digest())
    disk.activate({"chat": "be_chat_blue"})
    disk.remember("be_chat_blue", {"release": "r", "servers": ["10.0.0.1:1"]})

    assert len(digests) == 6
    assert disk.digest() in digests


@pytest.mark.parametrize("name", ["gateway.cfg", "one.cfg", "keys", "tls.pem", "services/a.b-c.cfg"])
def test_these_files_may_be_given(disk: Any, name: str) -> None:
    assert disk.GIVEN.fullmatch(name)


@pytest.mark.parametrize(
    "name", ["active.map", "state", "slots/be_chat_blue", "../x", "services/../x.cfg", "services/.cfg", ""]
)
def test_no_other_file_may_be_given(disk: Any, name: str) -> None:
    assert not disk.GIVEN.fullmatch(name)
