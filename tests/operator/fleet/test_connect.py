"""Connecting to a node: what is accepted, and why not, with a real client and a real server."""

from __future__ import annotations

import socket
import subprocess
import threading
from contextlib import suppress

import paramiko
import pytest

from sparkops.command import Command, unquote
from sparkops.config.inventory import Fleet
from sparkops.errors import HostKeyRefused, Interrupted, NotReachable
from sparkops.operator.fleet.connect import Connector
from sparkops.operator.fleet.host_keys import fingerprint_of
from tests.operator.fleet.ssh_server import SshServer


def refusal(fleet: Fleet, name: str) -> NotReachable:
    with pytest.raises(NotReachable) as caught:
        Connector(fleet, patience_s=0).node(name)
    return caught.value


def test_a_node_is_reached_through_another(fleet: Fleet) -> None:
    far = Connector(fleet, patience_s=0).node("far")

    assert far.run(Command(("echo", "far"))).stdout == "far\n"
    far.close()


def test_an_unknown_host_key_is_refused_with_its_fingerprint(fleet: Fleet, server: SshServer) -> None:
    fleet.known_hosts.unlink()

    error = refusal(fleet, "n1")

    shown = f"ecdsa-sha2-nistp256 {fingerprint_of(server.host_key)}"
    assert (type(error), str(error)) == (HostKeyRefused, f"n1: its host key is not pinned ({shown})")
    assert error.next_step == "Compare the fingerprint on the node's own screen, then: sparkops node trust n1"


@pytest.mark.parametrize("bits", [256, 384], ids=["of the same type", "of another type"])
def test_another_key_than_the_pinned_one_is_refused_as_changed(fleet: Fleet, server: SshServer, bits: int) -> None:
    Connector(fleet).pins("n1").write(paramiko.ECDSAKey.generate(bits=bits))

    error = refusal(fleet, "n1")

    shown = f"ecdsa-sha2-nistp256 {fingerprint_of(server.host_key)}"
    message = f"n1: its host key has changed to {shown}: another machine may be answering"
    assert (type(error), str(error)) == (HostKeyRefused, message)
    assert error.next_step == "If the node was reinstalled: sparkops node trust --replace n1"


@pytest.mark.parametrize("pinned", [False, True])
def test_a_revoked_key_is_refused_as_revoked(fleet: Fleet, server: SshServer, pinned: bool) -> None:
    key = server.host_key
    revoked = f"@revoked * {key.get_name()} {key.get_base64()}\n"
    fleet.known_hosts.write_text(revoked + (fleet.known_hosts.read_text() if pinned else ""))

    error = refusal(fleet, "n1")

    message = f"n1: host key refused: ecdsa-sha2-nistp256 {fingerprint_of(key)} is marked @revoked"
    assert (type(error), str(error)) == (HostKeyRefused, message)
    assert "sparkops node trust --replace n1" in error.next_step


def test_the_key_that_a_node_shows_can_be_looked_at_without_trust(fleet: Fleet, server: SshServer) -> None:
    fleet.known_hosts.unlink()

    assert Connector(fleet).host_key("n1") == server.host_key


def test_a_refused_user_says_what_to_check(fleet: Fleet, server: SshServer) -> None:
    error = refusal(fleet, "stranger")

    where = f"root@127.0.0.1:{server.port}"
    assert str(error) == f"stranger: cannot connect to {where}: the node refused the key"
    copy = f"ssh-copy-id -p {server.port} -i {fleet.resolve('id')} root@127.0.0.1"
    assert error.next_step == f"Check user and ssh_key of stranger, or: {copy}"


def test_a_missing_key_file_is_named(fleet: Fleet) -> None:
    error = refusal(fleet, "keyless")

    assert str(error) == f"keyless: key file not found: {fleet.file.parent}/nowhere"
    assert error.next_step == f"Correct ssh_key of keyless in {fleet.file}."


@pytest.mark.parametrize(
    ("options", "problem", "step"),
    [
        (
            ["-N", "secret"],
            "the key {file} has a passphrase",
            "Load it with ssh-add and name no key: those of the agent are tried.",
        ),
        (None, "{file} cannot be read as a private key: ", "Correct ssh_key of n1 in {inventory}."),
    ],
    ids=["passphrase", "no key"],
)
def test_a_key_file_that_cannot_be_used_says_why(
    fleet: Fleet, options: list[str] | None, problem: str, step: str
) -> None:
    file = fleet.resolve("id")
    file.write_text("not a key\n")
    if options:
        file.unlink()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", *options, "-f", file], check=True)

    error = refusal(fleet, "n1")

    assert str(error).startswith("n1: " + problem.format(file=file))
    assert error.next_step == step.format(inventory=fleet.file)


def read_by_ssh(next_step: str) -> dict[str, str]:
    """Return the settings with which OpenSSH would run the command at the end of a next step."""
    _, *words = unquote(next_step.partition(": ")[2])
    printed = subprocess.run(["ssh", "-G", "-F", "none", *words], check=True, capture_output=True, text=True).stdout
    return dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)


def test_the_test_that_an_error_names_reaches_the_port_of_the_node(fleet: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    mute = fleet.model_copy(update={"nodes": {"n1": fleet.nodes["n1"].model_copy(update={"port": port})}})

    settings = read_by_ssh(refusal(mute, "n1").next_step)

    assert (settings["user"], settings["hostname"], settings["port"]) == ("ops", "127.0.0.1", str(port))
    assert settings["identityfile"] == str(fleet.resolve("id"))


def test_the_test_of_a_node_on_the_default_port_names_no_port(fleet: Fleet) -> None:
    route = fleet.nodes["n1"].model_copy(update={"port": None, "ssh_key": None, "address": "255.255.255.255"})
    mute = fleet.model_copy(update={"nodes": {"n1": route}})

    assert refusal(mute, "n1").next_step == "Test it with: ssh ops@255.255.255.255"


def test_the_test_that_an_error_names_goes_through_the_jump_host(fleet: Fleet, server: SshServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    far = fleet.nodes["far"].model_copy(update={"port": port})

    settings = read_by_ssh(refusal(fleet.model_copy(update={"nodes": {**fleet.nodes, "far": far}}), "far").next_step)

    assert (settings["hostname"], settings["port"]) == ("localhost", str(port))
    assert settings["proxyjump"] == f"ops@[127.0.0.1]:{server.port}"


def test_a_name_that_no_name_service_can_be_asked_for_is_an_unknown_address(fleet: Fleet) -> None:
    """`status` connects before the inventory is checked."""
    route = fleet.nodes["n1"].model_copy(update={"address": "a" * 64})

    error = refusal(fleet.model_copy(update={"nodes": {"n1": route}}), "n1")

    assert str(error).endswith(f"{'a' * 64}:{route.port}: unknown address")


def test_an_address_that_does_not_exist_is_named(fleet: Fleet, server: SshServer) -> None:
    error = refusal(fleet, "nobody")

    assert str(error) == f"nobody: cannot connect to ops@nobody.invalid:{server.port}: unknown address"


def test_a_server_that_says_nothing_is_given_up_after_one_attempt(fleet: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        mute = fleet.model_copy(update={"nodes": {"n1": fleet.nodes["n1"].model_copy(update={"port": port})}})
        with pytest.raises(NotReachable, match=f"cannot connect to ops@127.0.0.1:{port}: "):
            Connector(mute, patience_s=0, timeout_s=0.1).node("n1")

        silent.accept()[0].close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()


@pytest.mark.parametrize("look", ["host_key", "node"])
@pytest.mark.parametrize(
    ("sent", "ends"), [(b"x" * 2**16, False), (b"SSH-\x1b[2J" + b"y" * 2**20 + b"\n", True)], ids=["endless", "long"]
)
def test_what_is_no_ssh_server_is_given_up_with_a_short_error(
    fleet: Fleet, look: str, sent: bytes, *, ends: bool
) -> None:
    """As an address of a hostile network that `init` or `trust` are told: a stream without an end, a line of 1 MiB."""
    with socket.create_server(("127.0.0.1", 0)) as hostile:

        def flood() -> None:
            connection, _ = hostile.accept()
            with connection, suppress(OSError):
                connection.sendall(sent)
                while not ends:
                    connection.sendall(sent)

        sending = threading.Thread(target=flood, daemon=True)
        sending.start()
        port = hostile.getsockname()[1]
        strange = fleet.model_copy(update={"nodes": {"n1": fleet.nodes["n1"].model_copy(update={"port": port})}})
        with pytest.raises(NotReachable, match=f"cannot connect to ops@127.0.0.1:{port}: ") as caught:
            getattr(Connector(strange, patience_s=0, timeout_s=1.0), look)("n1")
        sending.join()

    assert len(str(caught.value)) < 400


def test_a_server_that_hangs_up_at_first_is_tried_again(fleet: Fleet, server: SshServer) -> None:
    server.hang_ups = 2

    node = Connector(fleet, pause_s=0.01).node("n1")

    assert node.run(Command(("echo", "there"))).stdout == "there\n"
    node.close()


def test_a_server_that_hangs_up_is_not_tried_for_ever(fleet: Fleet, server: SshServer) -> None:
    server.hang_ups = 1000

    with pytest.raises(NotReachable, match="Error reading SSH protocol banner"):
        Connector(fleet, patience_s=0.05, pause_s=0.01).node("n1")

    assert 1000 - server.hang_ups < 100


def test_a_refused_user_is_not_tried_again(fleet: Fleet, server: SshServer) -> None:
    before = len(server.transports)

    with pytest.raises(NotReachable, match="the node refused the key"):
        Connector(fleet, patience_s=5, pause_s=0.01).node("stranger")

    assert len(server.transports) == before + 1


def test_after_ctrl_c_there_is_no_more_waiting(fleet: Fleet, server: SshServer) -> None:
    connector = Connector(fleet, patience_s=60, pause_s=60)
    server.hang_ups = 1000
    threading.Timer(0.1, connector.cancel.set).start()

    with pytest.raises(Interrupted):
        connector.node("n1")

    assert 1000 - server.hang_ups <= 2
