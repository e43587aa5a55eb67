"""Differences of gateway and guards: each named, and which of them an operator must consent to."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.config.inventory import Gateway
from sparkops.errors import PlanRefused
from sparkops.gateway.facts import GatewayFacts, ServiceFacts
from sparkops.names import INPUTS
from sparkops.operator.build.gateway import image as render
from sparkops.operator.build.gateway.files import Secrets, load_templates
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.deploy.agents.differences import (
    AgentContainer,
    GatewayContents,
    Kind,
    differing,
    fingerprint,
    of_container,
    of_gateway,
    require_consent,
    require_no_downgrade,
    require_own_names,
    require_own_ports,
)
from sparkops.operator.deploy.agents.gateway_agent import GatewaySpec

TEMPLATES = load_templates()
LABELS = {INPUTS: "a" * 64, "sparkops.node": "n1"}
SETTINGS = Gateway(node="n1", address="10.0.0.1")


def key(text: str) -> str:
    return render.hashed([text]).strip()


def contents(
    ports: Mapping[str, int],
    settings: Gateway = SETTINGS,
    keys: Mapping[str, str] | None = None,
    pem: str = "",
    aliases: tuple[str, ...] = (),
    *,
    sticky: bool = False,
) -> GatewayContents:
    services = {name: Service(name, port, aliases, sticky) for name, port in ports.items()}
    files = {
        **render.config(services.values(), settings, TEMPLATES),
        "keys": render.hashed((keys or {}).values()) or None,
        "tls.pem": pem or None,
    }
    return GatewayContents(
        services, files, {name: key(text) for name, text in (keys or {}).items()}, "metrics_port 8405"
    )


def running(of: GatewayContents, certificate: str = "") -> GatewayFacts:
    """A gateway that runs with these files."""
    files = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in of.files.items() if text is not None}
    services = {
        name: ServiceFacts(name, s.port, "", "be_down", {}, aliases=s.aliases, sticky=s.sticky)
        for name, s in of.services.items()
    }
    return GatewayFacts(services, files, loaded=True, keys=frozenset(of.keys.values()), certificate=certificate)


CHAT = contents({"chat": 9100})


def changes(facts: GatewayFacts, of: GatewayContents) -> list[tuple[Kind, str, bool]]:
    return [(change.kind, change.text, change.needs_consent) for change in of_gateway("n1", facts, of)]


def test_what_is_as_wanted_has_no_change() -> None:
    assert changes(running(CHAT), CHAT) == []
    assert [*of_container("n1", "guard", AgentContainer({**LABELS, "more": "x"}, running=True), LABELS)] == []


def test_another_service_needs_no_consent_and_another_port_of_one_does() -> None:
    assert changes(running(CHAT), contents({"chat": 9100, "embed": 9200})) == [
        (Kind.SERVICE, "embed on port 9200", False)
    ]
    assert changes(running(CHAT), contents({"chat": 9300})) == [
        (Kind.CONFIGURE, "chat on port 9100, expected 9300", True)
    ]


def test_only_what_differs_is_sent_so_that_a_service_that_was_removed_meanwhile_stays_removed() -> None:
    both, one = contents({"chat": 9100, "embed": 9200}), contents({"chat": 9100})

    assert differing(running(one), both).keys() == {"services/embed.cfg"}
    assert differing(running(both), one) == {"services/embed.cfg": None}
    assert differing(running(both), both) == {}


def test_other_aliases_of_a_service_need_consent() -> None:
    assert changes(running(CHAT), contents({"chat": 9100}, aliases=("a", "org/b"))) == [
        (Kind.CONFIGURE, "aliases of chat: none, expected a, org/b", True)
    ]


def test_a_change_of_sticky_needs_consent() -> None:
    assert changes(running(CHAT), contents({"chat": 9100}, sticky=True)) == [
        (Kind.CONFIGURE, "serve.sticky of chat: false, expected true", True)
    ]
    assert changes(running(contents({"chat": 9100}, sticky=True)), CHAT) == [
        (Kind.CONFIGURE, "serve.sticky of chat: true, expected false", True)
    ]


@pytest.mark.parametrize(
    ("service", "name", "other"),
    [
        (Service("embed", 9200, ("fast",)), "fast", "chat"),
        (Service("embed", 9200, ("chat",)), "chat", "chat"),
        (Service("fast", 9200), "fast", "chat"),
    ],
)
def test_a_name_that_another_service_has_is_refused(service: Service, name: str, other: str) -> None:
    require_own_names([Service("chat", 9100, ("fast",)), Service("embed", 9300, ("embed-small",))])

    with pytest.raises(PlanRefused) as refused:
        require_own_names([Service("chat", 9100, ("fast",)), service])

    assert str(refused.value) == (
        f"{service.name}: the name {name} belongs to {other} already: a request names one service"
    )
    assert refused.value.next_step == f"Remove {name} from serve.aliases of {service.name} or {other}."


@pytest.mark.parametrize(
    ("shared", "alternative"), [(8000, ", or to 8000, the port of all services"), (None, "")], ids=["one port", "none"]
)
def test_a_port_that_another_service_has_is_refused_unless_it_is_the_port_of_all(
    shared: int | None, alternative: str
) -> None:
    require_own_ports([Service("chat", 8000), Service("embed", 8000), Service("rank", 9100)], 8000)

    with pytest.raises(PlanRefused) as refused:
        require_own_ports([Service("chat", 9100), Service("embed", 9100)], shared)

    assert str(refused.value) == "embed: port 9100 of the gateway belongs to chat already"
    assert refused.value.next_step == f"Set serve.port of embed to another port{alternative}."


def test_services_on_the_port_of_all_move_with_it() -> None:
    facts = running(contents({"chat": 8000, "embed": 8000, "rank": 9100}, SETTINGS.model_copy(update={"port": 8000})))
    shared = {name: replace(facts.services[name], path=f"/{name}") for name in ("chat", "embed")}
    order: Any = None
    spec = GatewaySpec(order, (), SETTINGS.model_copy(update={"port": 9000}), Secrets(), TEMPLATES)

    moved = spec.contents(replace(facts, services={**facts.services, **shared}))

    assert {name: service.port for name, service in moved.services.items()} == {
        "chat": 9000,
        "embed": 9000,
        "rank": 9100,
    }


def test_limits_are_named_with_what_is_expected() -> None:
    texts = changes(running(CHAT), contents({"chat": 9100}, SETTINGS.model_copy(update={"client_requests": 20})))

    assert texts == [(Kind.CONFIGURE, "access to chat is not that of the inventory: metrics_port 8405", True)]


def test_keys_are_compared_by_the_name_of_their_file_and_never_shown() -> None:
    ann, bob = {"ann.key": "key-of-ann-000000"}, {"bob.key": "key-of-bob-000000"}
    guarded = SETTINGS.model_copy(update={"api_keys": ["ann.key"]})
    before = contents({"chat": 9100}, guarded, ann)

    assert changes(running(before), contents({"chat": 9100}, guarded, {**ann, **bob})) == [
        (Kind.CONFIGURE, "API keys: bob.key is added", True)
    ]
    (replaced,) = changes(running(before), contents({"chat": 9100}, guarded, bob))
    assert replaced[1] == "API keys: bob.key is added, one that the inventory does not name"
    assert not any("key-of" in text for _, text, _ in [replaced])


def test_an_inventory_without_the_keys_of_the_running_gateway_needs_consent() -> None:
    """A colleague's inventory may lack the keys: a deploy with it does not open the gateway to every client."""
    guarded = SETTINGS.model_copy(update={"api_keys": ["ann.key"]})
    running_gateway = running(contents({"chat": 9100}, guarded, {"ann.key": "key-of-ann-000000"}))

    differences = changes(running_gateway, CHAT)

    assert (Kind.CONFIGURE, "API keys: one that the inventory does not name", True) in differences
    with pytest.raises(PlanRefused, match="API keys: one that the inventory does not name"):
        require_consent(tuple(of_gateway("n1", running_gateway, CHAT)), given=False)


def test_a_certificate_is_compared_by_its_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "tls.pem"
    request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=gateway"]
    files = ("-keyout", str(tmp_path / "key"), "-out", str(file))
    subprocess.run(["openssl", *request, *files], check=True, capture_output=True)
    printed = subprocess.run(
        ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", str(file)], check=True, capture_output=True
    )
    pem = file.read_text()
    expected = printed.stdout.decode().strip().partition("=")[2]
    assert fingerprint(pem + (tmp_path / "key").read_text()) == expected

    texts = changes(running(CHAT, certificate="AB:CD"), contents({"chat": 9100}, pem=pem))

    assert texts == [(Kind.CONFIGURE, f"certificate AB:CD, expected {expected}", True)]


def test_a_gateway_that_has_no_files_yet_or_lost_its_program_needs_no_consent() -> None:
    bare = GatewayFacts({}, {}, loaded=False)
    assert changes(bare, CHAT) == [(Kind.INSTALL, "its first configuration", False)]
    stalled = replace(running(CHAT), problem="HAProxy does not answer")
    assert changes(stalled, CHAT) == [(Kind.START, "HAProxy does not answer", False)]


@pytest.mark.parametrize(
    ("container", "kind", "text"),
    [
        (None, Kind.INSTALL, "image aaaaaaaaaaaa"),
        (AgentContainer(LABELS, running=False), Kind.START, "its container is not running"),
        (AgentContainer({INPUTS: "b" * 64}, running=True), Kind.REPLACE, "image bbbbbbbbbbbb, expected aaaaaaaaaaaa"),
    ],
)
def test_a_container_is_compared_by_its_image_inputs(container: AgentContainer | None, kind: Kind, text: str) -> None:
    for agent in ("guard", "gateway"):
        (change,) = of_container("n1", agent, container, LABELS)
        assert (change.kind, change.text) == (kind, text)
        assert change.needs_consent == (agent == "gateway" and kind is Kind.REPLACE)
        assert change.needs_lease == (kind is Kind.REPLACE)


def test_consent_is_for_the_running_gateway_only_and_names_every_difference() -> None:
    (replaced,) = of_container("n1", "guard", AgentContainer({}, running=True), LABELS)
    added = tuple(of_gateway("n1", running(CHAT), contents({"chat": 9100, "embed": 9200})))
    require_consent((replaced, *added), given=False)
    moved = tuple(of_gateway("n1", running(CHAT), contents({"chat": 9300})))
    require_consent(moved, given=True)

    with pytest.raises(PlanRefused) as refused:
        require_consent(moved, given=False)

    assert str(refused.value) == (
        "the running gateway differs from the inventory:\n  n1: configure gateway: chat on port 9100, expected 9300"
    )
    assert "--apply-gateway" in refused.value.next_step


@pytest.mark.parametrize(
    ("running_version", "own", "refused"),
    [
        ("0.3.0", "0.2.0", True),
        ("0.10.0", "0.9.9", True),
        ("0.2.1", "0.2", True),
        ("0.2.0", "0.2.0", False),
        ("0.2.0", "0.3.0", False),
        ("", "0.2.0", False),
    ],
)
def test_an_older_version_replaces_no_newer_agent(running_version: str, own: str, *, refused: bool) -> None:
    labels = {**LABELS, "sparkops.version": running_version}
    if not refused:
        require_no_downgrade("n1", "guard", labels, own)
        return
    with pytest.raises(PlanRefused, match=f"n1: its guard is of sparkops {running_version}: version {own} ") as caught:
        require_no_downgrade("n1", "guard", labels, own)
    assert caught.value.next_step == f"Update sparkops on this machine to {running_version} or newer."


@pytest.mark.parametrize("agent", ["guard", "gateway"])
def test_a_newer_agent_is_refused_before_anything_changes_and_one_with_the_same_image_is_kept(agent: str) -> None:
    newer = {**LABELS, INPUTS: "b" * 64, "sparkops.version": "99.0"}

    with pytest.raises(PlanRefused, match=r"of sparkops 99\.0"):
        tuple(of_container("n1", agent, AgentContainer(newer, running=True), LABELS))
    assert tuple(of_container("n1", agent, AgentContainer({**newer, **LABELS}, running=True), LABELS)) == ()
