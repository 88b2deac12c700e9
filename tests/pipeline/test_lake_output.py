"""An output is refused or settled when it is opened: others' folders, older ones, and tables that changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from quorate.spark.errors import OutputError
from quorate.spark.schema import SCHEMA_VERSION, TABLES, comment_of
from quorate.spark.tables import Output, arrow_table, names, read_progress
from tests.pipeline.lake import CLUSTER, expected, rows_of, run_at, seen, written

NEW_OUTPUT = r"new output: quorate pipeline run -i … -o NEW"


def refused(path: Path, match: str, cluster_id: str = CLUSTER, num_shards: int | None = 1) -> None:
    """Assert that the output is refused, and that nothing in it changes."""
    before = {one: one.stat().st_mtime_ns for one in path.rglob("*")}
    with pytest.raises(OutputError, match=match):
        Output.open(str(path), cluster_id=cluster_id, num_shards=num_shards)
    assert {one: one.stat().st_mtime_ns for one in path.rglob("*")} == before


def table(path: Path, name: str = "ownership") -> DeltaTable:
    return DeltaTable(str(path / name))


def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    refused(tmp_path, f"is not empty and holds no tables of ours .*photos.*{NEW_OUTPUT}")
    refused(tmp_path / "photos/..", "photos")


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is not a folder"):
        Output.open(str(tmp_path / "file"), cluster_id=CLUSTER)


def test_an_output_of_an_older_release_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    (tmp_path / "_quorate").mkdir()
    (tmp_path / "_quorate/manifest.json").write_text(json.dumps({"format": 3}))
    refused(tmp_path, f"older release.*{NEW_OUTPUT}")


def test_a_fresh_mount_is_taken(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    run_at(str(tmp_path), 1)
    assert seen(str(tmp_path)) == expected(1)


def test_another_clusters_output_is_refused_even_before_its_first_run(tmp_path: Path) -> None:
    Output.open(str(tmp_path), cluster_id="other").close()
    refused(tmp_path, "holds the tables of cluster other, but the input belongs to cluster-1")


def test_another_number_of_shards_is_refused(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    refused(tmp_path, "written from 1 shards, but the input has 2", num_shards=2)


def test_an_output_of_a_newer_release_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("quorate.spark.tables.transaction.SCHEMA_VERSION", SCHEMA_VERSION + 1)
        run_at(str(tmp_path), 1)
    refused(tmp_path, f"its schema is {SCHEMA_VERSION + 1}.*use that release")


def test_the_columns_of_a_table_have_comments_with_units_and_know_what_is_never_null(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    for name, of_table in TABLES.items():
        fields = {one.name: one for one in table(tmp_path, name).schema().fields}
        assert list(fields) == [one.name for one in of_table.columns]
        for column in of_table.columns:
            assert fields[column.name].metadata["comment"] == comment_of(column)
            assert fields[column.name].nullable == names.schema_of(name).field(column.name).nullable


def test_a_vacuum_and_new_properties_by_others_are_accepted(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    table(tmp_path).vacuum(dry_run=False)
    table(tmp_path).alter.set_table_properties({"delta.checkpointInterval": "7"})
    progress = run_at(str(tmp_path), 2)
    assert progress.versions["ownership"] == table(tmp_path).version() > 2
    assert seen(str(tmp_path)) == expected(1, 2)


def test_anothers_compaction_of_rows_that_stay_is_accepted(tmp_path: Path) -> None:
    with Output.open(str(tmp_path), cluster_id=CLUSTER) as output:
        for at in (1, 2):
            with output.begin() as transaction:
                transaction.add(written(output, "commits", rows_of("commits", f"g-{at}", at=at)))
                transaction.commit(replace(output.progress, notes=str(at)))
    table(tmp_path, "commits").optimize.compact()
    with Output.open(str(tmp_path), cluster_id=CLUSTER) as output:
        assert [(file.part, file.rows) for file in output.files("commits")] == [("rows", 2)]
    add = run_at(str(tmp_path), 3, tables=("commits",))
    assert add.run == 3
    assert arrow_table(str(tmp_path), "commits").num_rows == 4


def test_anothers_compaction_that_mixed_replaceable_rows_is_undone(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    table(tmp_path).optimize.compact()
    run_at(str(tmp_path), 2)
    assert seen(str(tmp_path)) == expected(1, 2)


def test_rows_that_another_tool_added_are_refused_until_it_takes_them_back(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    write_deltalake(str(tmp_path / "ownership"), rows_of("ownership", "alien"), mode="append")
    version = 2  # 0 created the table, 1 is the run's
    refused(
        tmp_path, f"ownership .* changed by another tool: version {version}, WRITE; restore it to version 1"
    )
    assert seen(str(tmp_path)) == expected(1)  # readers go by the named version
    table(tmp_path).restore(1)
    run_at(str(tmp_path), 2)
    assert seen(str(tmp_path)) == expected(1, 2)


def test_rows_that_another_tool_deleted_are_refused(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    table(tmp_path).delete("group_id = 'g-1'")
    refused(tmp_path, "version 2, DELETE; restore it to version 1")


def test_an_overwritten_table_is_refused(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    write_deltalake(str(tmp_path / "ownership"), rows_of("ownership", "alien"), mode="overwrite")
    refused(tmp_path, "version 2, WRITE")


def test_a_column_that_another_tool_added_is_refused(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    table(tmp_path).alter.add_columns(Field("mine", PrimitiveType("string")))
    refused(tmp_path, "has other columns than our runs gave it; restore it to version 1")


def test_a_protocol_that_this_release_does_not_write_is_refused(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    changes = table(tmp_path)
    changes.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    refused(tmp_path, f"needs Delta's reader 1, writer .*{NEW_OUTPUT}")


def test_a_column_of_a_newer_release_is_added_and_null_in_older_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = names.schema_of("moves")
    known = {"moves": pa.schema(list(whole)[:-1]), "records": names.schema_of("records")}
    with monkeypatch.context() as before:
        before.setattr(names, "columns_of", lambda name: TABLES[name].columns[: -(name == "moves") or None])
        before.setattr(names, "schema_of", known.__getitem__)
        before.setattr(names, "all_tables", lambda: tuple(known))
        run_at(str(tmp_path), 1, tables=("moves",))
    run_at(str(tmp_path), 2, tables=("moves",))
    rows = arrow_table(str(tmp_path), "moves")
    assert rows.schema.equals(whole)
    assert rows.column(whole.names[-1]).null_count == 1
    assert [one.name for one in table(tmp_path, "moves").schema().fields] == whole.names


def test_a_table_that_is_gone_is_said_so(tmp_path: Path) -> None:
    from shutil import rmtree

    run_at(str(tmp_path), 1)
    rmtree(tmp_path / "ownership")
    with pytest.raises(OutputError, match=r"ownership .*is missing"):
        arrow_table(str(tmp_path), "ownership")
    with pytest.raises(OutputError, match=r"ownership .*is missing"):
        run_at(str(tmp_path), 2)


def test_a_file_that_another_tool_removed_is_named(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    gone = next(tmp_path.glob("ownership/rows-*.parquet"))
    gone.unlink()
    with pytest.raises(
        OutputError, match=f"ownership .* names {gone.name}, which is missing: .*{NEW_OUTPUT}"
    ):
        arrow_table(str(tmp_path), "ownership")


def test_progress_that_another_tool_changed_is_refused(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    rows = table(tmp_path, "progress").to_pyarrow_table()
    changed = rows.set_column(0, rows.schema.field(0), pa.array([9] * rows.num_rows))
    write_deltalake(str(tmp_path / "progress"), changed, mode="append")
    refused(tmp_path, "progress .*changed by another tool")
    with pytest.raises(OutputError, match="changed by another tool"):
        read_progress(str(tmp_path))


def test_progress_that_another_tool_advanced_is_refused(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    DeltaTable(tmp_path / "progress").update(updates={"records_to": "records_to + 5"})
    with pytest.raises(OutputError, match=r"progress .* changed by another tool: version .*, UPDATE"):
        run_at(str(tmp_path), 2)
