"""Few rows, read and written without Spark: the limits of "few", and files that were changed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import OutputError
from pipeline.tables import Output, OutputManifest, ShardProgress, local
from pipeline.tables.transaction import Staging

TABLE = "group_notes"
"""An internal table, which may have any columns."""
SCHEMA = pa.schema([("shard", pa.int32()), ("group_id", pa.string()), ("blob", pa.binary())])


def rows(count: int, blob: bytes = b"") -> pa.Table:
    columns = [[0] * count, [f"g{i}" for i in range(count)], [blob] * count]
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def written(out: Path, *tables: pa.Table) -> OutputManifest:
    with Output.open(out, cluster_id="c") as output:
        for number, table in enumerate(tables, 1):
            with output.begin() as tx:
                tx.stage(Staging(table=TABLE, rows=table))
                tx.commit({0: ShardProgress(number, number, 1)})
        return output.manifest


def test_few_is_up_to_the_bounds_and_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = written(tmp_path, rows(5, b"x"), rows(7, b"y")).files
    count, size = local.size_of(str(tmp_path), (file.path for file in files))
    assert count == 12
    found = local.read_locally(str(tmp_path), files, SCHEMA)
    assert found is not None
    assert found.equals(pa.concat_tables([rows(5, b"x"), rows(7, b"y")]))
    for name, bound in (("FEW_ROWS", count), ("FEW_BYTES", size), ("FEW_MEMORY", found.nbytes)):
        with monkeypatch.context() as patched:
            patched.setattr(local, name, bound)
            assert local.read_locally(str(tmp_path), files, SCHEMA) is not None
            patched.setattr(local, name, bound - 1)
            assert local.read_locally(str(tmp_path), files, SCHEMA) is None
    assert local.read_locally(str(tmp_path), [], SCHEMA) == SCHEMA.empty_table()


def test_more_may_be_looked_through_than_may_be_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = written(tmp_path, rows(50, b"x"), rows(70, b"y")).files
    monkeypatch.setattr(local, "ROWS_AT_ONCE", 9)

    def found() -> pa.Table | None:
        return local.read_locally(
            str(tmp_path), files, SCHEMA, lambda some: some.filter(pc.field("group_id") == "g7")
        )

    of_one = found()
    assert of_one is not None
    assert of_one.column("blob").to_pylist() == [b"x", b"y"]
    for name, bound in (("FEW_ROWS", 120 // local.LOOKED_THROUGH), ("FEW_MEMORY", of_one.nbytes)):
        with monkeypatch.context() as patched:
            patched.setattr(local, name, bound)
            assert found() == of_one
            assert local.read_locally(str(tmp_path), files, SCHEMA) is None
            patched.setattr(local, name, bound - 1)
            assert found() is None


def test_a_value_that_comes_again_and_again_counts_each_time(tmp_path: Path) -> None:
    """A file stores it once, in a dictionary; memory holds every occurrence."""
    files = written(tmp_path, rows(70_000, b"x" * 4_096)).files
    _, size = local.size_of(str(tmp_path), (file.path for file in files))
    assert size < local.FEW_BYTES // 10
    before = pa.total_allocated_bytes()
    assert local.read_locally(str(tmp_path), files, SCHEMA) is None
    assert pa.total_allocated_bytes() - before < local.FEW_MEMORY


def test_a_file_that_is_gone_or_spoiled_is_named(tmp_path: Path) -> None:
    (file,) = written(tmp_path, rows(5)).files
    said = f"{file.path} of the output {tmp_path} cannot be read: .*; restore it, or write to a new output"
    sound = (tmp_path / file.path).read_bytes()
    for spoiled in (None, b"", sound[: len(sound) // 2], sound[:4] + b"\xff" * 60 + sound[64:]):
        (tmp_path / file.path).unlink(missing_ok=True)
        if spoiled is not None:
            (tmp_path / file.path).write_bytes(spoiled)
        with pytest.raises(OutputError, match=said) as raised:
            local.read_locally(str(tmp_path), [file], SCHEMA)
        assert "\n" not in str(raised.value)
        with pytest.raises(OutputError, match=said):
            local.read_file(str(tmp_path), file.path)


def test_a_disk_that_refuses_a_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(pq, "write_table", refuse)
    with pytest.raises(OutputError, match=f"cannot write to {tmp_path}: Input/output error"):
        written(tmp_path, rows(5))
    assert not list(tmp_path.rglob("*.parquet"))
