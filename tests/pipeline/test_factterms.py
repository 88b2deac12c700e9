"""The terms that facts are derived with: the same whether they are searched for or were noted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

import pyarrow as pa

from pipeline.runs.factinputs import STATES
from pipeline.runs.factspans import FactSpan
from pipeline.runs.factterms import NEWEST, newest_terms, terms_of, write_newest_terms
from pipeline.schema import TABLES, arrow_type
from pipeline.tables import Output, ShardProgress
from pipeline.tables.transaction import Staging

DAY_MS = 86_400_000
FAILOVERS = arrow_type(TABLES["failovers"].columns)


def term(shard: int, index: int, *, day: int = 0) -> dict[str, Any]:
    ms = {"timestamp_ms": day * DAY_MS, "gap_ms": None}
    said = {"node_id": 2, "previous_leader": None, "why": "EXPIRY", "is_takeover": True}
    return {"cluster_id": "c", "shard": shard, "raft_index": index, "term": index // 10, **ms, **said}


class Log:
    """Runs that each add terms and advance the shards to an index."""

    def __init__(self, output: Output) -> None:
        self.output = output

    def run(
        self, to: int, *new: dict[str, Any], facts_to: int | None = None, is_noted: bool = True
    ) -> Mapping[int, list[int]]:
        """Run once and return the indexes of the terms that the facts receive, by shard."""
        rows = pa.Table.from_pylist(list(new), FAILOVERS)
        with self.output.begin() as tx:
            tx.stage(Staging(table="failovers", rows=rows))
            step: Any = SimpleNamespace(output=self.output, tx=tx, terms=rows)
            known = self.output.manifest.progress
            begins = {shard: known.get(shard, ShardProgress()).facts_to + 1 for shard in (0, 1)}
            spans = {shard: FactSpan(from_index=at, to_index=to, to_ms=0) for shard, at in begins.items()}
            told = terms_of(step, spans)
            if is_noted:
                write_newest_terms(step)
            tx.commit({shard: ShardProgress(to, facts_to or to, 0) for shard in (0, 1)})
        return {shard: [one.index for one in rows] for shard, rows in told.items()}

    def newest(self) -> dict[int, int]:
        return {shard: row["raft_index"] for shard, row in newest_terms(self.output).items()}

    def forget(self) -> None:
        """Delete the files of terms, so that a search for them fails."""
        for file in self.output.manifest.of("failovers"):
            Path(self.output.root, file.path).unlink(missing_ok=True)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Output.open(tmp_path / "out", cluster_id="c") as output:
        yield Log(output)


def test_the_newest_before_and_those_that_are_new(log: Log) -> None:
    """The clock went back between two terms: the index counts."""
    assert log.run(100, term(0, 10, day=9), term(0, 90, day=1), term(1, 20)) == {0: [10, 90], 1: [20]}
    assert log.newest() == {0: 90, 1: 20}
    log.forget()
    assert log.run(200) == {0: [90], 1: [20]}
    assert log.run(300, term(1, 250), term(1, 240), term(-1, 222)) == {0: [90], 1: [20, 240, 250]}
    log.forget()
    assert log.run(400) == {0: [90], 1: [250]}
    assert len(log.output.manifest.of(STATES, NEWEST)) == 3, "one a shard"


def test_facts_that_are_behind_are_told_of_all_that_they_do_not_know(log: Log) -> None:
    log.run(100, term(0, 10), term(0, 30), facts_to=20)
    log.run(200, term(0, 150), facts_to=20)
    assert log.run(300) == {0: [10, 30, 150]}


def test_what_an_older_release_added_is_not_missed(log: Log) -> None:
    """An older release adds terms without noting them, and its outputs have no notes at all."""
    log.run(100, term(0, 10), is_noted=False)
    assert log.newest() == {0: 10}
    assert log.run(200) == {0: [10]}
    assert log.output.manifest.of(STATES, NEWEST)
    log.run(300, term(0, 210), is_noted=False)
    assert log.newest() == {0: 210}
    assert log.run(400, term(0, 310)) == {0: [210, 310]}
    log.forget()
    assert log.newest() == {0: 310}


def test_a_log_without_terms_notes_none(log: Log) -> None:
    assert log.run(100) == {}
    assert not log.output.manifest.of(STATES)
