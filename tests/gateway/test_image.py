"""The gateway's configuration and image, as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2 import Environment, nodes

from sparkops.config.inventory import Gateway
from sparkops.errors import ConfigError
from sparkops.gateway.capacity import (
    KIB,
    LARGEST_MIB,
    MEMORY_MIB,
    METRICS,
    MIB,
    MOST_CONNECTIONS,
    PROBES,
    RESERVE_MIB,
    WAITING,
    buffer_bytes,
    frontend_connections,
)
from sparkops.names import Slot, backend, waiting
from sparkops.operator.build.gateway import files
from sparkops.operator.build.gateway import image as render
from sparkops.operator.build.gateway.files import Secrets
from sparkops.operator.build.gateway.image import Service
from tests.places import ROOT

HERE = Path(__file__).parent
COMMITTED = ROOT / "Dockerfiles/gateway.Dockerfile"
TEMPLATES = files.load_templates()
OPEN = Gateway(node="n", address="10.0.0.1")
GUARDED = Gateway(node="n", address="fd00::1", api_keys=["key"], tls_certificate="tls.pem", metrics_port=9405)
KEY = "sk-0123456789abcdef"
HOSTILE = st.one_of(st.text(min_size=1, max_size=30), st.text("a1.-_ \n\t\r#'\"\\{}%,();", min_size=1, max_size=30))


def golden(name: str) -> str:
    return (HERE / "golden" / name).read_text()


def test_the_configuration_is_this_text() -> None:
    config = render.config([Service("chat", 8000)], OPEN, TEMPLATES)

    assert config == {"gateway.cfg": golden("gateway.cfg"), "services/chat.cfg": golden("open.cfg")}


def test_with_keys_and_a_certificate_and_ipv6_a_service_is_this_text() -> None:
    config = render.config([Service("chat", 8000)], GUARDED, TEMPLATES)

    assert config["services/chat.cfg"] == golden("guarded.cfg")
    assert config["gateway.cfg"] == golden("gateway.cfg").replace(":8405\n", ":9405\n")


def test_aliases_stand_before_the_frontend_of_their_service() -> None:
    config = render.config([Service("chat", 8000, ("fast", "org/chat"))], OPEN, TEMPLATES)

    assert config["services/chat.cfg"] == f"# Further names: fast org/chat\n\n{golden('open.cfg')}"


def test_a_sticky_service_is_this_text() -> None:
    config = render.config([Service("chat", 8000, sticky=True), Service("plain", 8010)], OPEN, TEMPLATES)

    assert config["services/chat.cfg"] == golden("sticky.cfg")
    assert "hash" not in config["services/plain.cfg"]


def test_one_address_for_all_services_is_this_text() -> None:
    config = render.config([Service("chat", 8000)], OPEN.model_copy(update={"port": 8080}), TEMPLATES)

    assert config["one.cfg"] == golden("one.cfg")
    assert config["services/chat.cfg"] == golden("open.cfg")
    assert render.files([], OPEN, Secrets(), TEMPLATES)["one.cfg"] is None


def test_a_service_on_the_port_of_the_one_address_has_no_other() -> None:
    config = render.config([Service("chat", 8000, ("fast",))], OPEN.model_copy(update={"port": 8000}), TEMPLATES)
    text = config["services/chat.cfg"]

    assert "frontend fe_chat\n" not in text
    assert text.startswith("# Further names: fast\n")
    assert text.endswith(golden("open.cfg")[golden("open.cfg").index("# Requests wait in the waiting room") :])
    assert "  bind :8000\n" in config["one.cfg"]


@pytest.mark.parametrize(
    ("memory_mib", "buffer_kib", "per_frontend"),
    [
        (1536, 128, 900),
        (2048, 128, 1412),
        (2685, 128, 1823),
        (2686, 256, 900),
        (4986, 512, 900),
        (9586, 1024, 900),
        (16384, 1024, 1749),
    ],
)
def test_buffers_and_connections_fit_into_the_memory(memory_mib: int, buffer_kib: int, per_frontend: int) -> None:
    assert OPEN.memory_mib == MEMORY_MIB
    assert buffer_bytes(memory_mib) == buffer_kib * KIB
    assert frontend_connections(memory_mib) == per_frontend
    serving = 4 * per_frontend + METRICS + PROBES
    assert (2 * serving + WAITING) * buffer_kib * KIB + RESERVE_MIB * MIB <= memory_mib * MIB
    assert serving + WAITING <= MOST_CONNECTIONS

    gateway = OPEN.model_copy(update={"memory_mib": memory_mib, "port": 8080})
    config = render.config([Service("chat", 8000)], gateway, TEMPLATES)

    lines = config["gateway.cfg"].splitlines()
    assert f"  tune.bufsize {buffer_kib * KIB}" in lines
    assert [line for line in lines if line.startswith("  maxconn ")] == [
        f"  maxconn {number}" for number in (serving + WAITING, METRICS, PROBES)
    ]
    assert config["one.cfg"].count(f"\n  maxconn {per_frontend + WAITING}\n") == 1
    assert config["services/chat.cfg"].count(f"\n  maxconn {per_frontend}\n") == 2
    for name in ("one.cfg", "services/chat.cfg"):
        assert f" gt {(buffer_kib - 32) * KIB}" in config[name]
    assert f" too_large req.hdr_val(content-length) gt {LARGEST_MIB * MIB}\n" in config["one.cfg"]


def test_the_guard_sends_fewer_requests_at_once_than_its_socket_takes() -> None:
    program = files.load_program()["probe.py"].decode()
    at_once = re.search(r"^AT_ONCE = (\d+)", program, re.MULTILINE)
    assert at_once
    assert int(at_once[1]) < PROBES


def test_the_guards_socket_has_no_rule_of_clients_and_is_closed_to_other_users() -> None:
    text = render.config([], GUARDED, TEMPLATES)["gateway.cfg"]
    frontend = text[text.index("frontend probe\n") :].partition("\n\n")[0]
    assert "  bind unix@/run/gateway/probe.sock mode 600\n" in frontend
    assert not re.search("sc0|acl|ssl|deny|reject|return", frontend)


def test_the_one_address_has_the_keys_and_the_limits_of_a_service() -> None:
    config = render.config([Service("chat", 8000)], GUARDED.model_copy(update={"port": 8080}), TEMPLATES)

    access = [
        line for line in config["services/chat.cfg"].splitlines() if re.search("40[14]|413|429|431|acl|sc0", line)
    ]
    assert access
    assert set(access) <= {*config["one.cfg"].splitlines(), *re.findall(r".*in_chat.*", config["services/chat.cfg"])}
    assert "  bind :::8080 v4v6 ssl crt /var/lib/gateway/tls.pem alpn http/1.1" in config["one.cfg"].splitlines()


def test_services_come_in_order_and_each_in_a_file_of_its_own() -> None:
    services = [Service("b", 8010), Service("a", 8000)]

    assert list(render.config(services, OPEN, TEMPLATES)) == ["gateway.cfg", "services/a.cfg", "services/b.cfg"]
    alone = render.config(services[:1], OPEN, TEMPLATES)
    assert render.config(services, OPEN, TEMPLATES).items() >= alone.items()


def test_the_gateway_is_given_hashes_of_the_keys_in_an_order_that_tells_nothing() -> None:
    given = render.files([Service("chat", 8000)], GUARDED, Secrets((KEY, "b" * 16), "PEM"), TEMPLATES)

    assert given["keys"] == "".join(sorted(str(given["keys"]).splitlines(keepends=True)))
    assert re.fullmatch(r"([0-9A-F]{64}\n){2}", str(given["keys"]))
    assert given["tls.pem"] == "PEM"
    assert KEY not in repr(given)


def test_keys_and_a_certificate_that_are_no_longer_named_are_removed() -> None:
    given = render.files([], OPEN, Secrets(), TEMPLATES)

    assert (given["keys"], given["tls.pem"]) == (None, None)


def test_a_secret_is_not_in_the_text_of_its_value() -> None:
    assert "sk-" not in repr(Secrets((KEY,), "sk-"))


@given(name=HOSTILE)
@example(name="a\n  bind :1")
@example(name="a b")
@example(name="a#")
@example(name='a"')
@example(name="a\u2028b")
@example(name="%[env(HOME)]")
def test_no_name_adds_a_line_or_a_word(name: str) -> None:
    """Not even one that no model has checked: the filter alone holds."""
    expected = render.config([Service("a", 8000)], GUARDED, TEMPLATES)["services/a.cfg"]
    try:
        text = render.config([Service(name, 8000)], GUARDED, TEMPLATES)[f"services/{name}.cfg"]
    except ConfigError:
        return
    assert [len(line.split()) for line in text.splitlines()] == [len(line.split()) for line in expected.splitlines()]


def test_every_value_in_a_template_passes_a_filter() -> None:
    for name, text in TEMPLATES.items():
        for output in Environment(trim_blocks=True, autoescape=False).parse(text).find_all(nodes.Output):
            for printed in output.nodes:
                harmless = isinstance(printed, nodes.TemplateData | nodes.Call)
                assert harmless or (
                    isinstance(printed, nodes.Filter) and printed.name in {"word", "image", "model", "origin"}
                ), name


def test_a_slot_has_one_name_everywhere() -> None:
    text = render.config([Service("chat", 8000)], OPEN, TEMPLATES)["services/chat.cfg"]

    expected = [waiting("chat"), *(backend("chat", slot) for slot in Slot)]
    assert re.findall(r"^backend (\S+)$", text, re.MULTILINE) == expected


def test_the_committed_dockerfile_is_what_render_writes() -> None:
    assert COMMITTED.read_text() == render.gateway_dockerfile(TEMPLATES)


def test_the_image_is_made_of_the_program_and_changes_with_it() -> None:
    program = files.load_program()
    context = render.gateway_context(TEMPLATES, program)

    assert [path for path, _ in context.files] == ["Dockerfile", "program/", *(f"program/{name}" for name in program)]
    assert "__main__.py" in program
    changed: dict[str, Any] = {**program, "__main__.py": b"pass"}
    assert render.gateway_context(TEMPLATES, changed).digest != context.digest


@pytest.mark.parametrize(
    ("gateway", "url"),
    [
        (OPEN, "http://10.0.0.1:8000/v1"),
        (GUARDED, "https://[fd00::1]:8000/v1"),
        (Gateway(node="n", address="llm.example"), "http://llm.example:8000/v1"),
    ],
)
def test_clients_are_given_this_url(gateway: Gateway, url: str) -> None:
    assert gateway.url(8000) == url
