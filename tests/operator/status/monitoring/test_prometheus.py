"""A real Prometheus with the written files: it scrapes two guards and a gateway, and every alert fires and ends.

The rules wait for minutes and hours, which promtool plays (test_files.py). Here they wait for nothing, and look back a
few seconds.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from sparkops.config.inventory import Fleet
from sparkops.operator.status.monitoring import files
from tests.operator.status.monitoring.conftest import ALERTS, fleet_of
from tests.operator.status.monitoring.programs import program
from tests.operator.status.monitoring.world import World
from tests.ports import free_port

pytestmark = pytest.mark.local
WITHIN_S = 120.0
NAMES = {alert["alert"] for alert in ALERTS}
LOOKBACK = "8s"


def hurried(text: str) -> str:
    """The files with a scrape every second, and rules that wait for nothing."""
    text = re.sub(r"(scrape_interval|scrape_timeout|evaluation_interval): \w+", r"\1: 1s", text)
    return re.sub(r"\[\d+[mh]\]", f"[{LOOKBACK}]", re.sub(r"for: \w+", "for: 0s", text))


@contextmanager
def prometheus(fleet: Fleet, directory: Path, unpacked: Path) -> Iterator[str]:
    """Run Prometheus with the files of a fleet, written to a directory; yields the URL of its API."""
    for name, text in files(fleet).items():
        (directory / name).write_text(hurried(text))
    url = f"127.0.0.1:{free_port()}"
    argv = [
        program("prometheus", unpacked),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={url}",
    ]
    with (directory / "log").open("w") as log, subprocess.Popen(argv, stdout=log, stderr=log, cwd=directory) as running:
        try:
            yield f"http://{url}/api/v1"
        finally:
            running.terminate()


def of(world: World) -> Fleet:
    return fleet_of(world.directory, world.gateway, world.guards)


def asked(url: str) -> Any:
    """The data of a page of the API; empty until Prometheus answers."""
    try:
        return requests.get(url, timeout=10).json()["data"]
    except (requests.RequestException, ValueError, KeyError):
        return {}


def firing(api: str) -> set[str]:
    alerts = asked(f"{api}/alerts").get("alerts", ())
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def health(api: str) -> set[tuple[str, str, str]]:
    """Job, node and health of every target."""
    targets = asked(f"{api}/targets").get("activeTargets", ())
    return {(item["labels"]["job"], item["labels"]["node"], item["health"]) for item in targets}


def until(read: Callable[[], set[Any]], expected: set[Any]) -> None:
    """Wait until a set is as expected."""
    end = time.monotonic() + WITHIN_S
    while (last := read()) != expected:
        assert time.monotonic() < end, f"missing {expected - last}, unexpected {last - expected}"
        time.sleep(0.3)


def test_a_real_prometheus_scrapes_the_fleet_and_every_alert_fires_and_ends(tmp_path: Path, unpacked: Path) -> None:
    world = World(tmp_path)
    with ExitStack() as always, ExitStack() as second, ExitStack() as gateway:
        always.enter_context(world.guard("n1"))
        second.enter_context(world.guard("n2"))
        gateway.enter_context(world.haproxy())
        api = always.enter_context(prometheus(of(world), tmp_path, unpacked))
        up = {("sparkops-guard", "n1", "up"), ("sparkops-guard", "n2", "up")}
        up |= {(job, "n1", "up") for job in ("sparkops-gateway", "sparkops-gateway-waiting")}
        until(lambda: health(api), up)
        until(lambda: firing(api), set())

        world.bad = True
        until(lambda: firing(api), NAMES - {"SparkopsGuardDown", "SparkopsGatewayDown"})
        second.close()
        until(lambda: firing(api), NAMES - {"SparkopsGatewayDown"})
        gateway.close()
        until(lambda: firing(api) & {"SparkopsGatewayDown"}, {"SparkopsGatewayDown"})

        world.bad = False
        always.enter_context(world.guard("n2"))
        always.enter_context(world.haproxy())
        until(lambda: firing(api), set())
        assert health(api) == up
        assert world.refused == 0


def test_without_the_key_a_target_is_down(tmp_path: Path, unpacked: Path) -> None:
    world = World(tmp_path)
    with world.guard("n1"), world.guard("n2"), prometheus(of(world), tmp_path, unpacked) as api:
        until(
            lambda: {item for item in health(api) if item[0] == "sparkops-guard"},
            {
                ("sparkops-guard", "n1", "up"),
                ("sparkops-guard", "n2", "up"),
            },
        )
        (tmp_path / "monitoring.key").write_text("another-key-0123456789\n")  # Prometheus reads it at each scrape
        until(
            lambda: {item for item in health(api) if item[0] == "sparkops-guard"},
            {
                ("sparkops-guard", "n1", "down"),
                ("sparkops-guard", "n2", "down"),
            },
        )
