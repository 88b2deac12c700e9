"""The registry of analyses: every analysis is as it declares."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from quorate.spark.analyses import ANALYSES, analyses_text
from quorate.spark.analyses.registry import ENTRIES, RECORDS, by_name
from quorate.spark.schema import TABLES


@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_is_called_as_it_says(name: str) -> None:
    one = ANALYSES[name]
    parameters = inspect.signature(one.run).parameters.values()
    required = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    optional = [p.name for p in parameters if p.default is not inspect.Parameter.empty]
    assert len(required) == len(one.takes)
    assert optional == list(one.options)
    assert set(one.takes) <= {RECORDS, ENTRIES, *TABLES}
    assert all(text.endswith(".") for text in one.options.values())


@pytest.mark.parametrize("name", ANALYSES)
def test_columns_are_told_and_named_once(name: str) -> None:
    one = ANALYSES[name]
    assert len({column.name for column in one.columns}) == len(one.columns)
    assert all(column.means.endswith(".") for column in one.columns)
    assert one.columns[0].name == "cluster_id"
    assert one.answers[-1] in ".?"


def test_the_text_tells_of_every_analysis() -> None:
    lines = list(analyses_text())
    assert [line for line in lines if line.startswith("### ")] == [
        f"### Analysis {name}" for name in ANALYSES
    ]


def test_a_name_is_given_once() -> None:
    one = next(iter(ANALYSES.values()))
    with pytest.raises(ValueError, match=one.name):
        by_name((one, one))
