"""Inputs of a run's facts when they are small: the groups that are due, and the limits of "small"."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

import pyarrow as pa

from pipeline.facts.batches import STORED
from pipeline.facts.group import NOTES, PART, RESTLESS, SETTLED, STATE
from pipeline.facts.shared import ShardShared, Shared
from pipeline.runs import local_fact_inputs
from pipeline.runs.derived import Derived
from pipeline.runs.factinputs import PARTS, STATES, notes_of
from pipeline.runs.factspans import FactSpan
from pipeline.runs.local_fact_inputs import few_inputs
from pipeline.runs.step import Range
from pipeline.schema import RECORD_COLUMNS, arrow_type
from pipeline.tables import Output, ShardProgress
from pipeline.tables.buckets import hash_of, may_hold
from pipeline.tables.transaction import Staging
from records import RecordType

GROUPS = [f"g{number}" for number in range(40)]
RESTLESS_ONE = "g7"


def stored(kind: str, shard: int, sequence: int = SETTLED) -> pa.Table:
    def of(group_id: str) -> int:
        return RESTLESS if group_id == RESTLESS_ONE else sequence

    rows = [
        {"kind": kind, "shard": shard, "group_id": one, "sequence": of(one), "blob": f"{kind} {one}".encode()}
        for one in GROUPS
    ]
    return pa.Table.from_pylist(rows, STORED)


@pytest.fixture
def output(tmp_path: Path) -> Any:
    """States and parts of forty groups in each of two shards, in sixteen buckets."""
    with Output.open(tmp_path / "out", cluster_id="c") as opened:
        with opened.begin() as tx:
            states = pa.concat_tables([stored(STATE, shard) for shard in (0, 1)])
            parts = pa.concat_tables([stored(kind, shard) for kind in (PART, NOTES) for shard in (0, 1)])
            tx.stage(
                Staging(table=STATES, rows=states, part="states", buckets=16),
                Staging(table=PARTS, rows=parts, buckets=16),
            )
            tx.commit({shard: ShardProgress(10, 10, 1) for shard in (0, 1)})
        yield opened


def record(shard: int, group_id: str | None, index: int = 11, **more: Any) -> dict[str, Any]:
    type_ = int(RecordType.GROUP_METADATA)
    return {"shard": shard, "group_id": group_id, "raft_index": index, "sequence": 0, "type": type_, **more}


def inputs(
    output: Output, *records: dict[str, Any], is_news: bool = False, notes: Any = None
) -> tuple[pa.Table, pa.Table | None] | None:
    new = pa.Table.from_pylist(list(records), arrow_type(RECORD_COLUMNS))
    spans = {shard: FactSpan(from_index=11, to_index=12, to_ms=2) for shard in (0, 1)}
    shards = {shard: ShardShared(from_index=11, to_index=12, to_ms=2) for shard in (0, 1)}
    if is_news:
        shards = {shard: SimpleNamespace(is_news_to_all=True) for shard in shards}  # type: ignore[misc]
    shared = Shared(cluster_id="c", shards=shards, notes=notes or {})
    step: Any = SimpleNamespace(output=output, few=new, ranges={0: Range(from_index=11, to_index=12)})
    return few_inputs(step, spans, shared)


def due(found: tuple[pa.Table, pa.Table | None] | None) -> set[tuple[int, str]]:
    assert found is not None
    assert found[1] is not None
    rows = found[1].to_pylist()
    kinds = {(row["shard"], row["group_id"], row["kind"]) for row in rows}
    groups = {(shard, group_id) for shard, group_id, _ in kinds}
    assert kinds == {(*group, kind) for group in groups for kind in (STATE, PART, NOTES)}
    return groups


def test_groups_with_records_are_due_and_restless_ones_and_noted_ones(output: Output) -> None:
    found = inputs(output, record(0, "g1"), record(0, None), record(0, "g2", type=1), record(1, "new"))
    restless = {(0, RESTLESS_ONE), (1, RESTLESS_ONE)}
    assert due(found) == {(0, "g1"), *restless}
    assert found is not None
    assert {row["group_id"] for row in found[0].to_pylist()} == {"g1", "new"}
    assert due(inputs(output, notes={(1, "g3"): ("{}",), (5, "g3"): ("{}",)})) == {(1, "g3"), *restless}
    assert due(inputs(output, is_news=True)) == {(shard, one) for shard in (0, 1) for one in GROUPS}


def test_only_buckets_that_groups_are_in_are_read_but_for_who_is_restless(output: Output) -> None:
    """The parts of other groups have been deleted."""
    looked_at = {(0, hash_of("g1")), *((shard, hash_of(RESTLESS_ONE)) for shard in (0, 1))}
    others = [file for file in output.manifest.of(PARTS) if not may_hold(file, looked_at)]
    assert len(others) > 20
    for file in others:
        Path(output.root, file.path).unlink()
    assert due(inputs(output, record(0, "g1"))) == {(0, "g1"), (0, RESTLESS_ONE), (1, RESTLESS_ONE)}


def test_what_is_not_little_is_left_to_spark(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups have records, and one is restless in each shard."""
    records = [record(0, "g1"), record(0, "g2")]
    found = inputs(output, *records)
    assert found is not None
    assert found[1] is not None
    for name, bound in (("RECORDS_MAX", 2), ("GROUPS_MAX", 4), ("BYTES_MAX", found[1].column("blob").nbytes)):
        with monkeypatch.context() as patched:
            patched.setattr(local_fact_inputs, name, bound)
            assert inputs(output, *records) is not None
            patched.setattr(local_fact_inputs, name, bound - 1)
            assert inputs(output, *records) is None


def test_large_records_and_many_new_groups_are_not_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_fact_inputs, "BYTES_MAX", 1_000)
    monkeypatch.setattr(local_fact_inputs, "GROUPS_MAX", 10)
    with Output.open(tmp_path / "out", cluster_id="c") as nothing_yet:
        assert inputs(nothing_yet, record(0, "g1", value_bytes=b"x" * 900)) is not None
        assert inputs(nothing_yet, record(0, "g1", value_bytes=b"x" * 1_000)) is None
        assert inputs(nothing_yet, *(record(0, f"g{n}") for n in range(10))) is not None
        assert inputs(nothing_yet, *(record(0, f"g{n}") for n in range(11))) is None


def test_what_is_derived_here_asks_for_no_buckets() -> None:
    """Its size in Arrow is thirty times its size in files."""
    rows = stored(STATE, 0).combine_chunks().to_batches()
    assert Derived.here(None, rows).size(STATE) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("num_shards", [None, 1])
def test_notes_of_what_no_group_can_be_called_are_passed_over(num_shards: int | None) -> None:
    noted = [{"group": "g1"}, {"group": "\ud800"}, {"group": None}, {}]
    reader = SimpleNamespace(evidence=lambda: noted)
    log: Any = SimpleNamespace(
        shards=[-1, 0], num_shards=num_shards, log=SimpleNamespace(reader=lambda _: reader)
    )
    assert set(notes_of(log)) == {(0, "g1")}
