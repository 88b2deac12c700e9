"""Alert rules and dashboard: PromQL over the metrics of a real cluster, with the labels that these have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from cluster.launching.launcher import launch_cluster
from quorate.client import Client

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "alerts.yaml"
DASHBOARD = json.loads((ROOT / "deploy" / "grafana.json").read_text())
OPERATIONS = ROOT / "docs" / "operations.md"
GROUPS: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
PANELS: list[dict[str, Any]] = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
OF_TARGETS = {"job", "instance"}
"""Labels that Prometheus adds to every sample."""

ON_OCCASION = {
    "quorate_kafka_connections_closed_total": {"why"},
    "quorate_kafka_errors_total": {"api", "error"},
}
"""The labels of metrics that have no sample before something has gone wrong (cluster/http/metrics.py)."""

UNITS = {"none", "short", "s", "ms", "bytes", "Bps", "ops", "reqps", "percentunit"}
"""Those of Grafana's units that fit what a node measures."""

Exported = dict[str, set[str]]
"""The labels of each metric's samples."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The metrics that Prometheus gets from three nodes that ship their logs; `up` is its own."""
    folder = tmp_path_factory.mktemp("scraped")
    started = launch_cluster(
        folder / "cluster", num_nodes=3, settings={"log.archive.url": f"file://{folder}/store"}
    )
    found: Exported = {"up": set(OF_TARGETS)}
    try:
        with Client(started.bootstrap) as client:
            client.create_topic("orders", 3)
        for node in started.nodes:
            with urllib.request.urlopen(f"{node.url}/metrics", timeout=5) as answer:
                text = answer.read().decode()
            for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE):
                found.setdefault(name, OF_TARGETS | ON_OCCASION.get(name, set()))
            for name, labels in re.findall(r"^([a-z]\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
                found.setdefault(name, set(OF_TARGETS)).update(re.findall(r'(\w+)="', labels))
    finally:
        started.kill()
    return found


def labels_of(expression: Any, exported: Exported) -> set[str] | None:
    """Return the labels of an expression's result, None for a number; a missing metric or label fails."""
    match expression:
        case promql.VectorSelector():
            assert expression.name in exported, f"no node exports {expression.name}"
            own = exported[expression.name]
            for matcher in expression.matchers.matchers:
                assert matcher.name in own, f"{expression.name} has no label {matcher.name}"
            return set(own)
        case promql.MatrixSelector():
            return labels_of(expression.vector_selector, exported)
        case promql.AggregateExpr():
            inner = labels_of(expression.expr, exported)
            kept = set(re.findall(r"\w+", str(expression.modifier).removeprefix("by")))
            if expression.modifier is None:
                return set()
            assert inner is not None
            assert kept <= inner, f"{expression.prettify()}: no labels {kept - inner}"
            return kept
        case promql.Call():
            vectors = [one for arg in expression.args if (one := labels_of(arg, exported)) is not None]
            return set.union(set(), *vectors) - (
                {"le"} if expression.func.name == "histogram_quantile" else set()
            )
        case promql.BinaryExpr():
            sides = [labels_of(side, exported) for side in (expression.lhs, expression.rhs)]
            if str(expression.op) == "or":
                assert sides[0] is not None
                assert sides[1] is not None
                return sides[0] & sides[1]
            return sides[0] if sides[0] is not None else sides[1]
        case promql.ParenExpr() | promql.UnaryExpr():
            return labels_of(expression.expr, exported)
        case promql.NumberLiteral():
            return None
    raise AssertionError(f"what labels has {expression!r}?")


def parsed(text: str) -> Any:
    """Parse PromQL, with a value for Grafana's variables."""
    return promql.parse(text.replace("$__rate_interval", "1m").replace("$job", "quorate"))


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:quorate|process|kafka_server)_\w+", text))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("quorate_shard_redy == 0", "no node exports quorate_shard_redy"),
        ('quorate_info{shrad="1"}', "quorate_info has no label shrad"),
        ("sum by (node) (quorate_shard_ready)", "no labels {'node'}"),
    ],
)
def test_a_metric_or_label_that_nothing_exports_is_found(
    exported: Exported, text: str, complaint: str
) -> None:
    with pytest.raises(AssertionError, match=re.escape(complaint)):
        labels_of(parsed(text), exported)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_uses_what_is_exported_and_says_what_to_do(rule: dict[str, Any], exported: Exported) -> None:
    labels = labels_of(parsed(rule["expr"]), exported)
    assert labels is not None
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description"}
    for text in rule["annotations"].values():
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels, text
        assert set(re.findall(r"{{ (\$\w+)", text)) <= {"$labels", "$value"}


def test_names_of_alerts_and_groups_are_unique() -> None:
    for names in ([rule["alert"] for rule in RULES], [group["name"] for group in GROUPS]):
        assert len(names) == len(set(names))


def _rows_with_a_condition() -> Iterator[set[str]]:
    """Yield the metrics of each row of the documentation's table that says when to alert."""
    for cell, condition in re.findall(
        r"^\| (`quorate_[^|]*) \|[^|]*\| ([^|]*) \|$", OPERATIONS.read_text(), re.MULTILINE
    ):
        first, *others = re.findall(r"`(\w+)`", cell)
        prefix = "_".join(first.split("_")[:2])  # `_commit_index` stands for quorate_shard_commit_index
        if condition != "–":
            yield {first, *(prefix + name if name.startswith("_") else name for name in others)}


def test_every_condition_of_the_documentation_has_an_alert() -> None:
    alerting = set().union(*(metrics_in(rule["expr"]) for rule in RULES))
    rows = list(_rows_with_a_condition())
    assert len(rows) >= 15
    assert [row for row in rows if not row & alerting] == []


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_shows_what_is_exported_with_title_and_unit(
    panel: dict[str, Any], exported: Exported
) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["targets"]
    for target in panel["targets"]:
        labels = labels_of(parsed(target["expr"]), exported)
        assert labels is not None
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels
        assert all(f'{name}{{job="$job"}}' in target["expr"] for name in metrics_in(target["expr"]))


def test_panels_have_places_and_ids_of_their_own() -> None:
    places = [one["gridPos"] for one in DASHBOARD["panels"]]
    taken = [
        (x, y)
        for at in places
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24  # Grafana's columns
    ids = [one["id"] for one in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.deploy
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on this machine")
def test_promtool_accepts_the_rules() -> None:
    ran = subprocess.run(
        ["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(RULES)} rules found" in ran.stdout
