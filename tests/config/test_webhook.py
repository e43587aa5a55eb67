"""The section `webhook` of the inventory."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.config import inventory
from sparkops.errors import ConfigError

pytestmark = pytest.mark.unit
NODES = "nodes:\n  n1: {transport: local}\n"


def written(directory: Path, webhook: str) -> Path:
    file = directory / "inventory.yaml"
    file.write_text(f"{NODES}webhook:\n{webhook}")
    return file


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.org/services/T/B/x?y=z",
        "http://192.168.1.5:8080/sparkops",
        "http://10.0.0.7/",
        "http://127.0.0.1:9000/",
        "http://[fd00::5]:8080/",
        "https://203.0.113.7/",
    ],
)
def test_https_and_http_to_private_addresses(tmp_path: Path, url: str) -> None:
    fleet = inventory.load(written(tmp_path, f'  urls: ["{url}"]\n'))

    assert fleet.webhook
    assert fleet.webhook.urls == [url]


PLAIN = "http to a name or a public address, expected https, a private IP address, or `allow_http: true`"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://hooks.example.org/T0K3N", PLAIN),
        ("http://203.0.113.7/T0K3N", PLAIN),
        ("http://ntfy.lan/T0K3N", PLAIN),
        ("http://169.254.169.254/T0K3N", "169.254.169.254 is a link-local, multicast or reserved address"),
        ("https://[fe80::1]/T0K3N", "fe80::1 is a link-local, multicast or reserved address"),
        ("https://[::ffff:169.254.169.254]/T0K3N", "is a link-local, multicast or reserved address"),
        ("http://0.0.0.0/T0K3N", "0.0.0.0 is a link-local, multicast or reserved address"),
        ("https://ann:T0K3N@hooks.example.org/", "has a user or a fragment"),
        ("https://hooks.example.org/#T0K3N", "has a user or a fragment"),
        ("file:///etc/T0K3N", "expected ASCII text that begins with https:// or http://"),
        ("https://hooks.example.org/T0K3N\u00e9", "expected ASCII text that begins with https:// or http://"),
    ],
)
def test_a_url_that_is_none_for_events_is_refused_with_its_line_and_never_shown(
    tmp_path: Path, url: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        inventory.load(written(tmp_path, f'  urls:\n    - "https://a.example/"\n    - "{url}"\n'))

    assert "inventory.yaml:6: webhook.urls[1]: " in str(caught.value)
    assert problem in str(caught.value)
    assert "T0K3N" not in str(caught.value)


def test_http_to_anything_else_needs_a_word(tmp_path: Path) -> None:
    text = "  urls: [http://ntfy.lan/x, http://203.0.113.7/]\n  allow_http: true\n"

    assert inventory.load(written(tmp_path, text)).webhook
