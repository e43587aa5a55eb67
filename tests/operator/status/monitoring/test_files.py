"""The written files, read by promtool; every expression names a figure that guard or gateway serves."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from sparkops.config import shipped
from sparkops.config.inventory import Fleet
from sparkops.engines.load import METRICS
from sparkops.guard.report.exposition import EngineFigures, GuardFigures, PeerFigures, ServiceFigures, text
from sparkops.operator.status.monitoring import files
from sparkops.serving.watch.finding import EngineFinding
from sparkops.swap.catalogue import CATALOGUE, DISK_LOW_GIB, Code, Severity
from sparkops.swap.model import Answer, Phase
from tests.examples import HOST, container, rank
from tests.operator.deploy.states import swapping
from tests.operator.status.monitoring.cases import BAD_MIN, CASES
from tests.operator.status.monitoring.conftest import ALERTS, COLUMNS, DASHBOARD, KEY, fleet_of
from tests.operator.status.monitoring.programs import program

FINDING = EngineFinding(
    code="STALLED", service="chat", node="n1", container="c", since=1.0, detail="no step", next_step="sparkops status"
)
NAME = re.compile(r"\bsparkops_[a-z0-9_]+")
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
"""Those of the dashboard, with Grafana's variables."""
VARIABLES = {"$service": ".*", "$node": ".*", "$__rate_interval": "1m"}


def written(fleet: Fleet, directory: Path) -> Path:
    for name, content in files(fleet).items():
        (directory / name).write_text(content)
    return directory


def served() -> set[str]:
    """The names of all figures of a guard, and of the gateway's waiting room."""
    sums = dict.fromkeys(METRICS, 0.0)
    full = GuardFigures(
        version="1",
        started_at=1.0,
        leads=True,
        docker=True,
        host=HOST,
        engines=(EngineFigures(container(rank()), True, sums),),
        peers=(PeerFigures("n2", True, 1.0),),
        services=(ServiceFigures(swapping(Phase.LOAD).journal, Answer.YES, needs_operator=False),),
        findings=(FINDING,),
        ordered_at=1.0,
        read_at=1.0,
    )
    families = set(re.findall(r"# TYPE (\S+)", text(full).decode()))
    ends = {f"{name}{end}" for name in families for end in ("_sum", "_count") if name.endswith("_token_seconds")}
    replies = (shipped.PACKAGE.parent / "templates/gateway/program/replies.py").read_text()
    of_room = re.findall(r'^    "(\w+)": "', replies.partition("FIGURES = {")[2].partition("}")[0], re.MULTILINE)
    return families | ends | {f"sparkops_gateway_{name}" for name in of_room}


def test_no_critical_alert_fires_at_a_single_scrape() -> None:
    critical = [alert for alert in ALERTS if alert["labels"]["severity"] == Severity.CRITICAL]

    assert critical
    assert [alert["alert"] for alert in critical if alert["for"] == "0s"] == []


def test_what_lasts_and_a_guard_tells_has_a_rule_of_the_same_severity_and_time() -> None:
    """The hold is an operator's own word."""
    rules = {Code(alert["labels"]["event"]): alert for alert in ALERTS if "event" in alert["labels"]}
    lasting = {code for code, entry in CATALOGUE.items() if entry.lasts}

    assert lasting - set(rules) == {Code.HOLD}
    for event, rule in rules.items():
        entry = CATALOGUE[event]
        assert rule["labels"] == {"severity": entry.severity.value, "event": event.value}
        assert rule["for"] == f"{entry.after_s:.0f}s"


def test_the_rule_for_a_full_disk_has_the_limit_of_the_guards() -> None:
    [rule] = [alert for alert in ALERTS if alert["labels"].get("event") == Code.DISK_LOW]

    assert rule["expr"] == f"sparkops_node_disk_free_bytes < {DISK_LOW_GIB:.0f} * 2^30"


def test_every_expression_names_figures_that_are_served() -> None:
    used = {name for text in (*EXPRESSIONS, *(alert["expr"] for alert in ALERTS)) for name in NAME.findall(text)}

    assert used - served() == set()
    assert len(used) > 20


def test_every_node_and_the_gateway_are_scraped_with_the_key(fleet: Fleet) -> None:
    jobs = yaml.safe_load(files(fleet)["prometheus.yml"])["scrape_configs"]
    targets = {
        job["job_name"]: [target for entry in job["static_configs"] for target in entry["targets"]] for job in jobs
    }

    assert targets == {
        "sparkops-guard": ["127.0.0.1:10845", "127.0.0.2:10845"],
        "sparkops-gateway": ["127.0.0.1:8405"],
        "sparkops-gateway-waiting": ["127.0.0.1:8405"],
    }
    key_file = {"type": "Bearer", "credentials_file": str(fleet.file.parent / "monitoring.key")}
    assert [job["authorization"] for job in jobs] == [key_file] * 3
    assert [entry["labels"]["node"] for entry in jobs[0]["static_configs"]] == ["n1", "n2"]


def test_no_file_has_the_key(fleet: Fleet) -> None:
    assert [name for name, content in files(fleet).items() if KEY in content] == []


def test_without_monitoring_only_the_gateway_is_scraped_on_its_node(tmp_path: Path) -> None:
    [metrics, waiting] = yaml.safe_load(files(fleet_of(tmp_path, guards=None))["prometheus.yml"])["scrape_configs"]

    assert (metrics["static_configs"][0]["targets"], waiting["metrics_path"]) == (
        ["127.0.0.1:8405"],
        "/metrics/waiting",
    )
    assert "authorization" not in metrics


def test_the_dashboard_has_what_grafana_requires() -> None:
    """Of Grafana's schema of a dashboard (kinds/dashboard/dashboard_kind.cue): the required keys of each part."""
    board, panels = DASHBOARD, DASHBOARD["panels"]
    places = [panel["gridPos"] for panel in panels]
    cells = Counter(
        (column, line)
        for place in places
        for column in range(place["x"], place["x"] + place["w"])
        for line in range(place["y"], place["y"] + place["h"])
    )

    assert {"schemaVersion", "title", "uid", "panels", "templating", "time"} <= set(board)
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    assert {panel["type"] for panel in panels} == {"row", "timeseries", "stat"}
    assert max(cells.values()) == 1, "two panels overlap"
    assert max(place["x"] + place["w"] for place in places) <= COLUMNS
    for panel in panels:
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert {"refId", "expr", "datasource"} <= set(panel["targets"][0])
            assert set(panel["fieldConfig"]) == {"defaults", "overrides"}
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "service", "node"]


@pytest.mark.local
def test_promtool_accepts_configuration_and_rules(fleet: Fleet, tmp_path: Path, unpacked: Path) -> None:
    directory = written(fleet, tmp_path)
    promtool = program("promtool", unpacked)

    assert f"{len(ALERTS)} rules found" in run(promtool, "check", "config", directory / "prometheus.yml")


@pytest.mark.local
def test_promtool_parses_every_expression_of_the_dashboard(tmp_path: Path, unpacked: Path) -> None:
    rules = []
    for number, expression in enumerate(EXPRESSIONS):
        expr = expression
        for variable, value in VARIABLES.items():
            expr = expr.replace(variable, value)
        rules.append({"record": f"panel:{number}", "expr": expr})
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    assert f"{len(rules)} rules found" in run(program("promtool", unpacked), "check", "rules", file)


def test_every_alert_has_a_case() -> None:
    assert set(CASES) == {alert["alert"] for alert in ALERTS}


@pytest.mark.local
def test_each_alert_fires_after_its_time_and_ends(fleet: Fleet, tmp_path: Path, unpacked: Path) -> None:
    directory = written(fleet, tmp_path)
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    groups = [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in case.items()],
            "promql_expr_test": [
                {
                    "expr": firing,
                    "eval_time": f"{BAD_MIN}m",
                    "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}],
                },
                {"expr": firing, "eval_time": f"{2 * BAD_MIN}m", "exp_samples": []},
            ],
        }
        for name, case in CASES.items()
    ]
    file = directory / "alerts_test.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": ["sparkops-alerts.yml"], "evaluation_interval": "1m", "tests": groups})
    )

    assert "SUCCESS" in run(program("promtool", unpacked), "test", "rules", file)


def run(*argv: str | Path) -> str:
    """What a program prints. Fails with it where the program does."""
    ran = subprocess.run([*map(str, argv)], check=False, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr
