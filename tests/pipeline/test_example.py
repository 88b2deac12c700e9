"""The example finds the guilty deployment."""

from __future__ import annotations

import csv
import re
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")
pytest.importorskip("matplotlib", reason="needs the extra spark")

from benchmarks.mixedlog import write_life
from quorate.spark.runs.run import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "spark" / "deployments.py"


@pytest.mark.spark
def test_the_deployment_that_crash_loops_is_first(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, tables, deployed = tmp_path / "node", tmp_path / "tables", tmp_path / "deployments.csv"
    plan = write_life(str(log), 12_000, days=1, seed=2).plan
    plan.write_deployments(deployed)
    run(spark, str(log), str(tables))
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(tables), str(deployed)])
    told = runpy.run_path(str(EXAMPLE))
    guilty, *others = told["answer"]
    worst = plan.worst
    assert (guilty.service, guilty.version) == (plan.services[worst.service].name, worst.version)
    # Each instance left and returned 1 + crashes times, in each group of the service; a pause may add some.
    groups = len(plan.services[worst.service].groups)
    assert guilty.rebalances == pytest.approx(8 * (1 + worst.crashes) * groups, rel=0.1)
    assert all(other.rebalances < guilty.rebalances / 2 for other in others)
    with deployed.open() as file:
        assert len(told["answer"]) == len(list(csv.DictReader(file)))
    assert (tmp_path / "deployments.svg").read_text().startswith("<?xml")
    said = capsys.readouterr().out
    assert f"{guilty.service} {guilty.version}" in said
    shown = EXAMPLE.with_name("README.md").read_text()
    assert shapes(said) <= shapes(shown)
    assert len(shapes(said)) >= 7


def shapes(text: str) -> set[str]:
    """Return the kinds of lines in the answer, without numbers, names and anything after a colon."""
    answer = text[text.index("deployment  ") :].splitlines()
    indented = (line.strip() for line in answer if "chart:" not in line)
    kinds = (re.sub(r"[\w.-]*\d[\w.,-]*", "N", line.partition(": ")[0]) for line in indented)
    return {re.sub(r"[A-Z]{2,}\w+", "TRIGGER", re.sub(r" +", " ", kind)) for kind in kinds if kind.strip()}
