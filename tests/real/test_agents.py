"""Guard and gateway on real nodes: they come up, stay up, and are only touched where they are not as wanted."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest

from sparkops.command import Command, Completed
from sparkops.config import assets, inventory
from sparkops.config.inventory import Fleet
from sparkops.errors import BuildFailed, Busy, CommandFailed, ImageRejected, NotReady, PlanRefused, StartFailed
from sparkops.gateway import commands as gateway_commands
from sparkops.names import Slot
from sparkops.node.agents import commands as guard_commands
from sparkops.node.agents.replaceable import guard_version
from sparkops.node.member import Member
from sparkops.node.node import Node
from sparkops.node.progress import Event
from sparkops.operator.build.gateway import files as gateway_files
from sparkops.operator.build.gateway import image as gateway_render
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.build.guard import image as guard_render
from sparkops.operator.build.images.build import build_on
from sparkops.operator.deploy.agents import agents
from sparkops.operator.deploy.agents.agents import AgentSpecs
from sparkops.operator.fleet.connected import Connected, connect
from sparkops.swap import wire
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, RankSpec, Replica
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.fleet.shell import FleetError
from tests.guard.lead.test_gateway_front import released
from tests.places import ROOT
from tests.real.cases import some
from tests.real.service import PATIENCE_S

pytestmark = pytest.mark.fleet

FRONT, OTHER = f"front-{os.getpid()}", f"other-{os.getpid()}"
CHAT = Service("chat", 9300)
WRITE_JOURNAL = """
import sys
from sparkops.guard.disk.state import State
from sparkops.swap import wire
from sparkops.swap.journal import Journal
State().write_journal(wire.load(Journal, sys.stdin.buffer.read()))
"""
SERVICES = "/var/lib/sparkops/v2/services"
SPEC = next(released("10.0.0.9").heads).spec  # one that every version of these tests can read
LOST = Deployment("q-2", Slot.BLUE, (Replica((RankSpec("lost", "q-2-blue-r0", spec=SPEC),)),))
DEAF = b"\n\ndef open_socket(*_, **__):\n    raise OSError('planted')\n"
ENDS = b"\n\ndef start():\n    sys.exit('planted')\n"
NET_ADMIN = 12  # the number of the capability, in linux/capability.h
TEMPLATES, PACKAGE = assets.load_templates(), assets.load_package()
SOCKET = PACKAGE["guard/lead/operator_socket.py"]
GUARD, GATEWAY = guard_commands.CONTAINER, gateway_commands.CONTAINER
REPLACEMENT = guard_commands.replacement(GATEWAY)


@dataclass(frozen=True)
class Pair:
    """Two nodes of our own, the gateway on the first, and what must run there."""

    fleet: Fleet
    machines: dict[str, FleetNode]
    specs: AgentSpecs
    events: list[Event] = field(default_factory=list)

    def ensure(self, specs: AgentSpecs | None = None, *, apply_gateway: bool = False) -> dict[str, tuple[str, ...]]:
        with connect(self.fleet, [*self.machines]) as connected:
            return agents.ensure(connected, specs or self.specs, self.events.append, apply_gateway=apply_gateway)

    def ids(self) -> dict[str, str]:
        """What runs, by node and name."""
        form = "{{.Names}} {{.ID}}"
        lines = {
            name: machine.exec("docker", "ps", "--format", form).splitlines() for name, machine in self.machines.items()
        }
        return {f"{name} {line.split()[0]}": line.split()[1] for name in lines for line in lines[name]}

    def lead(self, journal: Journal) -> None:
        """Let the leader have a journal."""
        write = ("docker", "exec", "--interactive", GUARD, "python3", "-c", WRITE_JOURNAL)
        self.machines[FRONT].exec(*write, stdin=wire.dump(Journal, journal))
        self.machines[FRONT].exec("docker", "restart", GUARD)

    def forget(self, node: str, service: str) -> None:
        """Let a guard know nothing of a service."""
        self.machines[node].exec("docker", "exec", GUARD, "rm", "-rf", f"{SERVICES}/{service}")
        self.machines[node].exec("docker", "restart", GUARD)

    def images(self, node: str) -> str:
        return self.machines[node].exec("docker", "images", "--format", "{{.Repository}}:{{.Tag}}")

    def ask(self, port: int = CHAT.port) -> int:
        """The status of a request that nobody serves."""
        with closing(HTTPConnection(self.machines[FRONT].address, port, timeout=PATIENCE_S)) as connection:
            connection.request("GET", "/v1/models")
            answer = connection.getresponse()
            assert "Retry-After" in answer.headers
            return answer.status


def other_guard(pair: Pair, **files: bytes) -> AgentSpecs:
    """The guard from another source."""
    changed = {path.replace("__", "/") + ".py": content for path, content in files.items()}
    parent = pair.fleet.build.parent(guard_render.DEBIAN)
    return replace(pair.specs, guard=agents.guard_order(TEMPLATES, {**PACKAGE, **changed}, parent))


def with_front(specs: AgentSpecs, **changes: Any) -> AgentSpecs:
    """The gateway wanted otherwise."""
    assert specs.gateway
    return replace(specs, gateway=replace(specs.gateway, **changes))


def other_gateway(fleet: Fleet, specs: AgentSpecs, **files: bytes) -> AgentSpecs:
    """The gateway from another program."""
    program = {**gateway_files.load_program(), **{f"{name}.py": content for name, content in files.items()}}
    parent = fleet.build.parent(gateway_render.IMAGE)
    context = gateway_render.gateway_context(gateway_files.load_templates(), program, parent)
    assert specs.gateway
    return with_front(specs, order=replace(specs.gateway.order, context=context))


def names(machine: FleetNode) -> list[str]:
    """All containers of a node."""
    return machine.exec("docker", "ps", "--all", "--format", "{{.Names}}").splitlines()


def replaced(pair: Pair, node: str, helper: str) -> bool:
    """Whether the program that replaces an agent has ended well, and does not start again."""
    state = "{{.State.Status}} {{.State.ExitCode}} {{.HostConfig.RestartPolicy.Name}}"
    machine = pair.machines[node]
    return helper in names(machine) and machine.exec("docker", "inspect", "--format", state, helper) == "exited 0 no"


@dataclass
class Requests:
    """Requests to the gateway, one after the other: the number of replies, and the requests without one."""

    replies: int = 0
    failures: list[str] = field(default_factory=list)


@contextmanager
def asking(pair: Pair) -> Iterator[Requests]:
    """Send requests all the while, and one afterwards."""
    requests, ended = Requests(), threading.Event()

    def ask() -> None:
        while not ended.wait(0.01):
            try:
                requests.replies += pair.ask() == 503
            except (OSError, HTTPException) as error:
                requests.failures.append(repr(error))

    with ThreadPoolExecutor() as clients:
        asks = clients.submit(ask)
        try:
            yield requests
            before = requests.replies
            wait_until(lambda: requests.replies > before)
        finally:
            ended.set()
        asks.result()


def killed(pair: Pair, number: int, *, during: bool = False) -> str:
    """Kill a client that replaces the gateway before a command, or `during` it. Returns the verb of the command."""
    text = f"# killed at {number} {during}\n"
    command = (sys.executable, "-m", "tests.real.stepwise", str(pair.fleet.file), text)
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin
        assert client.stdout
        for _ in range(number):
            assert client.stdout.readline()
            client.stdin.write("\n")
            client.stdin.flush()
        line = client.stdout.readline()
        if during:
            client.stdin.write("\n")
            client.stdin.flush()
            wait_until(lambda: REPLACEMENT in names(pair.machines[FRONT]))
        client.kill()
        return line.split()[1]


@pytest.fixture(scope="module")
def bare(nodes: RealFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    machines = {}
    try:
        for name in (FRONT, OTHER):
            machines[name] = nodes.add(name)
        file = nodes.write_inventory(tmp_path_factory.mktemp("agents") / "inventory.yaml", list(machines.values()))
        fleet = inventory.load(file)
        yield Pair(fleet, machines, agents.load(fleet, [CHAT]))
    finally:
        for name in machines:
            nodes.remove(name)


@pytest.fixture
def pair(bare: Pair) -> Pair:
    """The nodes as they should be."""
    bare.ensure(apply_gateway=True)
    bare.events.clear()
    return bare


def test_bare_nodes_get_a_guard_each_and_one_gateway_also_from_two_operators_at_once(bare: Pair) -> None:
    with ThreadPoolExecutor() as operators:
        both = [future.result() for future in [operators.submit(bare.ensure) for _ in range(2)]]

    assert {name for result in both for name in result[FRONT]} == {"guard", "gateway"}
    assert {name for result in both for name in result[OTHER]} == {"guard"}
    assert bare.ids().keys() == {f"{FRONT} {GUARD}", f"{FRONT} {GATEWAY}", f"{OTHER} {GUARD}"}
    assert "sparkops-candidate" not in bare.images(FRONT) + bare.images(OTHER)
    assert bare.ask() == 503


def test_what_is_right_is_only_looked_at(pair: Pair) -> None:
    before = pair.ids()

    with connect(pair.fleet) as connected:
        spied, ran = spy(connected)

        assert agents.ensure(spied, pair.specs, pair.events.append) == {FRONT: (), OTHER: ()}

    assert pair.events == []
    assert pair.ids() == before
    assert sorted(command.argv[:3] for command in ran) == [
        ("docker", "exec", GATEWAY),
        ("docker", "exec", GUARD),
        ("docker", "exec", GUARD),
        ("hostname", "-I"),
    ]
    assert [command for command in ran if command.changes] == []


@pytest.mark.usefixtures("pair")
def test_the_guard_has_no_right_but_the_socket_and_knows_its_node(bare: Pair) -> None:
    machine = bare.machines[OTHER]
    status = machine.exec("docker", "exec", GUARD, "cat", "/proc/1/status")
    boot = machine.exec("docker", "exec", GUARD, "cat", guard_commands.BOOT_ID)

    assert f"CapEff:\t{1 << NET_ADMIN:016x}" in status
    assert "NoNewPrivs:\t1" in status
    assert machine.exec("docker", "exec", GUARD, "printenv", "SPARKOPS_NODE") == OTHER
    assert machine.exec("docker", "exec", GUARD, "docker", "ps", "--format", "{{.Names}}") == GUARD
    assert boot == machine.exec("cat", "/proc/sys/kernel/random/boot_id")


def test_a_service_more_reloads_the_gateway_and_the_others_stay(pair: Pair) -> None:
    before = pair.ids()

    result = pair.ensure(with_front(pair.specs, services=(Service("embed", 9310),)))

    assert result == {FRONT: ("gateway",), OTHER: ()}
    assert [event.text for event in pair.events] == ["configuring services: chat, embed"]
    assert (pair.ask(), pair.ask(9310)) == (503, 503)
    assert pair.ids() == before


@pytest.mark.matrix
def test_another_version_replaces_the_guard_and_nothing_else(pair: Pair) -> None:
    before, old = pair.ids(), pair.images(OTHER)
    write = ("docker", "exec", GUARD, "sh", "-c", "echo kept >/var/lib/sparkops/note")
    pair.machines[OTHER].exec(*write)

    result = pair.ensure(other_guard(pair, guard__lead__operator_socket=SOCKET + b"# another version\n"))

    assert result == {FRONT: ("guard",), OTHER: ("guard",)}
    changed = {name for name, container in pair.ids().items() if before[name] != container}
    assert changed == {f"{FRONT} {GUARD}", f"{OTHER} {GUARD}"}
    assert pair.machines[OTHER].exec("docker", "exec", GUARD, "cat", "/var/lib/sparkops/note") == "kept"
    assert pair.images(OTHER) != old
    assert pair.images(OTHER).count("sparkops/guard:") == 1


@pytest.mark.matrix
def test_p6_agents_do_not_change_while_a_service_does(pair: Pair) -> None:
    before, other = pair.ids(), other_guard(pair, guard__lead__operator_socket=SOCKET + b"# yet another version\n")
    nodes = {**pair.fleet.nodes, "lost": pair.fleet.nodes[OTHER]}  # a node of the inventory that nothing connects to
    larger = replace(pair, fleet=pair.fleet.model_copy(update={"nodes": nodes}))
    pair.lead(Journal("chat", FRONT, (OTHER,)).begun("i1", Mode.FIRST, LOST, automatic=True))
    try:
        with pytest.raises(Busy, match=rf"{FRONT}: chat: a swap to q-2 is in phase 'prepare'") as caught:
            larger.ensure(other)
        assert caught.value.next_step == "sparkops status chat --follow"
        assert pair.ids() == before
    finally:
        pair.forget(FRONT, "chat")
    assert pair.ensure(other) == {FRONT: ("guard",), OTHER: ("guard",)}


@pytest.mark.matrix
def test_a_guard_that_does_not_answer_gives_way_to_the_old_one(pair: Pair) -> None:
    before = pair.ids()
    deaf = other_guard(pair, guard__lead__operator_socket=SOCKET + DEAF)

    with pytest.raises(StartFailed, match="the new guard does not answer; the old one runs again"):
        pair.ensure(replace(pair.specs, guard=deaf.guard))

    assert pair.ids() == before
    assert pair.ensure() == {FRONT: (), OTHER: ()}


def test_a_guard_is_replaced_to_the_end_without_its_client(pair: Pair) -> None:
    node, other = (
        pair.machines[OTHER],
        other_guard(pair, guard__lead__operator_socket=SOCKET + b"# it comes by itself\n"),
    )
    with connect(pair.fleet, [OTHER]) as connected:
        image = build_on(connected.member(OTHER), other.guard, pair.events.append).image

    version = guard_version(OTHER, other.guard.context.digest)
    node.exec(*guard_commands.replace(image, GUARD, image, *version.arguments).argv)

    wait_until(lambda: replaced(pair, OTHER, version.replacement))
    assert version.aside not in names(node)
    assert pair.ensure(other) == {FRONT: ("guard",), OTHER: ()}


@pytest.mark.matrix
def test_a_guard_that_cannot_read_the_journals_replaces_none(pair: Pair) -> None:
    before, other = pair.ids(), other_guard(pair, guard__lead__operator_socket=SOCKET + b"# it reads no garbage\n")
    plant = f"mkdir -p {SERVICES}/broken && echo garbage >{SERVICES}/broken/journal"
    pair.machines[OTHER].exec("docker", "exec", GUARD, "sh", "-c", plant)
    try:
        with pytest.raises(NotReady, match=rf"{OTHER}: guard not replaced: .*broken/journal") as refused:
            pair.ensure(other)
        assert refused.value.exit_code == 5
        assert pair.ids()[f"{OTHER} {GUARD}"] == before[f"{OTHER} {GUARD}"]
    finally:
        pair.forget(OTHER, "broken")
    pair.ensure()


@pytest.mark.matrix
def test_another_gateway_is_put_in_place_aloud_and_keeps_its_services(pair: Pair) -> None:
    before = pair.ids()
    other = with_front(other_gateway(pair.fleet, pair.specs, more=b"# another version\n"), services=())

    with pytest.raises(PlanRefused, match=f"{FRONT}: replace gateway: image "):
        pair.ensure(other)
    assert pair.ids() == before
    with asking(pair) as requests:
        result = pair.ensure(other, apply_gateway=True)

    assert result == {FRONT: ("gateway",), OTHER: ()}
    assert any("requests are answered" in event.text for event in pair.events)
    assert {name for name, container in pair.ids().items() if before[name] != container} == {f"{FRONT} {GATEWAY}"}
    assert requests.failures == []
    assert pair.ask() == 503


@pytest.mark.parametrize(
    ("number", "during", "verb"),
    [
        (0, False, "run"),
        (0, True, "run"),
        (1, False, "rm"),
    ],
    ids=["before the replacement", "during it", "after it"],
)
@pytest.mark.matrix
def test_a_gateway_is_replaced_to_the_end_without_its_client(pair: Pair, number: int, during: bool, verb: str) -> None:
    machine, before = pair.machines[FRONT], pair.ids()[f"{FRONT} {GATEWAY}"]
    begun = during or number > 0
    with asking(pair) as requests:
        assert killed(pair, number, during=during) == verb
        if during:
            with suppress(FleetError):  # it may have ended
                machine.kill_container(REPLACEMENT)
        if begun:
            wait_until(lambda: replaced(pair, FRONT, REPLACEMENT))

    assert requests.failures == []
    assert {name for name in names(machine) if name.startswith(GATEWAY)} == {GATEWAY, *([REPLACEMENT] if begun else [])}
    assert (pair.ids()[f"{FRONT} {GATEWAY}"] != before) == begun
    assert pair.ensure(apply_gateway=True) == {FRONT: ("gateway",) if begun else (), OTHER: ()}
    assert {name for name in names(machine) if name.startswith(GATEWAY)} == {GATEWAY}


@pytest.mark.matrix
def test_a_gateway_that_does_not_start_gives_way_to_the_old_one(pair: Pair) -> None:
    before, program = pair.ids(), gateway_files.load_program()
    broken = other_gateway(pair.fleet, pair.specs, loading=program["loading.py"] + ENDS)

    with (
        asking(pair) as requests,
        pytest.raises(StartFailed, match=f"{FRONT}: the new gateway does not answer; the old one runs again: "),
    ):
        pair.ensure(broken, apply_gateway=True)

    assert pair.ids() == before
    assert requests.failures == []
    assert pair.ask() == 503
    assert pair.ensure() == {FRONT: (), OTHER: ()}


@pytest.mark.parametrize(
    ("planted", "error", "message"),
    [
        pytest.param({"guard__daemon": b"def broken(:\n"}, BuildFailed, "SyntaxError", marks=pytest.mark.matrix),
        ({"guard__daemon": b"import nothing_of_that_name\n"}, ImageRejected, "nothing_of_that_name"),
    ],
    ids=["a syntax error", "an import that fails"],
)
def test_a_broken_guard_never_replaces_one_that_works(pair: Pair, planted: Any, error: Any, message: str) -> None:
    before = pair.ids(), pair.images(OTHER)

    with connect(pair.fleet, [OTHER]) as connected, pytest.raises(error) as refused:
        agents.ensure(connected, other_guard(pair, **planted), pair.events.append)

    assert message in str(refused.value)
    assert (pair.ids(), pair.images(OTHER)) == before


def test_a_stopped_guard_is_started_again(pair: Pair) -> None:
    pair.machines[OTHER].exec("docker", "stop", GUARD)

    assert pair.ensure() == {FRONT: (), OTHER: ("guard",)}


LIVE_RESTORE = """
import json, pathlib
file = pathlib.Path("/etc/docker/daemon.json")
options = json.loads(file.read_text()) if file.exists() else {}
file.write_text(json.dumps({**options, "live-restore": True}))
"""
"""The file may name the image store."""


@pytest.mark.matrix
def test_a_guard_that_outlived_dockerd_gets_its_socket_back(pair: Pair) -> None:
    """With Docker's live-restore the container lives on, and its socket is that of the Docker before."""
    machine = pair.machines[OTHER]
    machine.exec("python3", "-c", LIVE_RESTORE)
    for _ in range(2):  # the first start only learns the option
        machine.kill_engine()
        machine.start_engine()

    assert pair.ensure() == {FRONT: (), OTHER: ("guard",)}
    assert pair.ensure() == {FRONT: (), OTHER: ()}


@pytest.mark.parametrize("happens", some(["dockerd killed", "reboot", "power cut"]))
def test_both_survive(pair: Pair, happens: str) -> None:
    machine = pair.machines[FRONT]
    boot = boot_of(pair)

    if happens == "dockerd killed":
        machine.kill_engine()
        machine.start_engine()
    else:
        machine.reboot(graceful=happens == "reboot")

    wait_until(lambda: pair.ask() == 503)
    wait_until(lambda: (boot_of(pair) == boot) == (happens == "dockerd killed"))
    assert pair.ensure() == {FRONT: (), OTHER: ()}


def boot_of(pair: Pair) -> str:
    """The id of the node's boot, as a guard that answers reads it."""
    with connect(pair.fleet, [FRONT]) as connected:
        node = connected.members[FRONT].node
        node.run(guard_commands.READY)
        return node.run(Command(("docker", "exec", GUARD, "cat", guard_commands.BOOT_ID))).stdout


def wait_until(true: Any, patience_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + patience_s
    while True:
        try:
            if true():
                return
        except (OSError, CommandFailed):
            pass
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)


@dataclass(frozen=True)
class Spy:
    """A node that remembers what it was told to run."""

    node: Node
    ran: list[Command]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)

    def run(self, command: Command, **options: Any) -> Completed:
        self.ran.append(command)
        return self.node.run(command, **options)


def spy(connected: Connected) -> tuple[Connected, list[Command]]:
    ran: list[Command] = []
    members: dict[str, Member] = {
        name: replace(member, node=Spy(member.node, ran)) for name, member in connected.members.items()
    }
    return replace(connected, members=members), ran
