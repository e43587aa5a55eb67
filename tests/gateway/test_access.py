"""Who gets in: keys, certificates, and what the container itself may do."""

from __future__ import annotations

import json
import ssl
from contextlib import closing
from http.client import HTTPSConnection

import pytest

from sparkops.config.inventory import Gateway
from sparkops.gateway import commands
from sparkops.names import Slot
from sparkops.operator.build.gateway.files import Secrets
from tests.gateway.live import METRICS, PATIENCE_S, PORT, SERVED_BY, Answer, Live

pytestmark = pytest.mark.fleet

BLUE, GREEN = Slot
BEGIN = "-----BEGIN CERTIFICATE-----"
CANARY = "sk-canary-0123456789abcdef"


def test_without_a_key_nobody_is_served_and_no_key_is_seen_anywhere(live: Live) -> None:
    live.gateway = Gateway(node="n", metrics_port=METRICS, api_keys=["key"])
    live.secrets = Secrets((CANARY, "another-key-0123456789"))
    live.configure()

    for answer in (live.ask(), live.ask(authorization="Bearer wrong"), live.ask(authorization=CANARY)):
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json["error"]["code"] == "invalid_api_key"
    for key in (CANARY, "another-key-0123456789"):
        assert live.ask(authorization=f"Bearer {key}").served_by == SERVED_BY[BLUE]
    assert "authorization" not in live.ask("/v1/models/seen", authorization=f"bearer {CANARY}").json["headers"]
    assert_unseen(live, CANARY)


def assert_unseen(live: Live, secret: str) -> None:
    state = live.inside("sh", "-c", "cat $(find /var/lib/gateway /run/gateway -type f) /proc/*/cmdline")
    outside = ("docker logs sparkops-gateway 2>&1", "docker inspect sparkops-gateway", "docker history --no-trunc $1")
    image = live.machine.exec("docker", "inspect", "--format", "{{.Image}}", commands.CONTAINER)
    for text in (state, *(live.machine.exec("sh", "-c", script, "sh", image) for script in outside)):
        assert text
        assert secret not in text


def test_with_a_certificate_a_service_speaks_https(live: Live) -> None:
    names = ("-subj", "/CN=gateway", "-addext", f"subjectAltName=IP:{live.machine.address}")
    out = ("-keyout", "/dev/stdout", "-out", "/dev/stdout")
    pem = live.machine.exec("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, *out)
    live.gateway = Gateway(node="n", metrics_port=METRICS, tls_certificate="tls.pem")
    live.secrets = Secrets(certificate=f"{pem}\n")
    live.configure()

    trust = ssl.create_default_context(cadata=pem[pem.index(BEGIN) :])
    with closing(HTTPSConnection(live.machine.address, PORT, timeout=PATIENCE_S, context=trust)) as connection:
        connection.request("GET", "/v1/models")
        assert Answer.of(connection.getresponse()).served_by == SERVED_BY[BLUE]
    assert "PRIVATE KEY" not in json.dumps(live.facts.files)


def test_the_container_has_no_rights_and_its_sockets_are_its_own(live: Live) -> None:
    status = live.inside("cat", "/proc/1/status").split("\n")
    rights = {name: value.split() for name, _, value in (line.partition(":") for line in status)}

    assert rights["Uid"] == [str(commands.USER)] * 4
    assert {*rights["CapPrm"], *rights["CapEff"], *rights["CapBnd"]} == {"0" * 16}
    assert rights["NoNewPrivs"] == ["1"]
    modes = live.inside("sh", "-c", "stat -c '%a %n' /run/gateway/*.sock /run/gateway /var/lib/gateway/*").split("\n")
    assert "660 /run/gateway/admin.sock" in modes
    assert "600 /run/gateway/master.sock" in modes
    assert "700 /run/gateway" in modes
    assert "600 /var/lib/gateway/state" in modes
    assert live.machine.exec("docker", "exec", commands.CONTAINER, "sh", "-c", "touch /x 2>&1 || true").endswith(
        "Read-only file system"
    )
