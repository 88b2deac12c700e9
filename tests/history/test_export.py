"""Tables for other programs: the same rows in every format, hostile names unharmed, whole files or none."""

from __future__ import annotations

import csv
import gc
import io
import json
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history.checking.commits import commits
from history.export import files, formats, sources
from history.export.columns import (
    ColumnKind,
    TableSchema,
    boolean,
    int64,
    ints,
    json_text,
    maybe,
    text,
    texts,
)
from history.export.files import OutputFiles
from history.export.formats import ESCAPED, FORMATS, CannotWrite, writer_of
from history.export.schema import SCHEMAS, tables_text
from history.export.tables import export
from history.facts.group import facts_of
from history.moments import LogWindow
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import NothingToRead, Walk
from raftlog.storage.frames import Frame
from records import iter_records
from records.jsonform import record_from_json
from tests.history.repeating_log import Repeating, opened
from tests.support.disk_node import DiskNode
from tests.support.memory_log import GROUP
from tests.support.payments_log import group_log, metadata_log

ROOT = Path(__file__).parents[2]


def readable(text: str) -> str:
    """The text that `writable` encoded."""
    return str(json.loads(text.removeprefix(ESCAPED))) if text.startswith(ESCAPED) else text


def csv_text(cell: str) -> str:
    """The text of a CSV cell whose quotes were already removed."""
    return readable(cell.removeprefix("'"))


def read_back(path: Path, table: TableSchema) -> list[dict[str, Any]]:
    """The rows of a file, each value as it was."""
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return [_from_parquet(row, table) for row in parquet.read_table(path).to_pylist()]
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return list(_from_csv(path.read_bytes().decode(), table))


def _from_parquet(row: dict[str, Any], table: TableSchema) -> dict[str, Any]:
    for one in table.columns:
        value = row[one.name]
        if value is None:
            continue
        if one.kind is ColumnKind.TEXT:
            row[one.name] = readable(value)
        elif one.kind is ColumnKind.TEXTS:
            row[one.name] = [readable(text) for text in value]
        elif one.kind is ColumnKind.JSON:
            row[one.name] = json.loads(value)
    return row


def _from_csv(text: str, table: TableSchema) -> Any:
    """Yield the rows of a CSV file. Nulls are marked first: Python's reader cannot tell them from empty
    texts."""
    lines = csv.reader(io.StringIO(_nulls_marked(text), newline=""))
    assert next(lines) == [one.name for one in table.columns]
    for cells in lines:
        row: dict[str, Any] = {}
        for one, cell in zip(table.columns, cells, strict=True):
            if cell == "\0null\0":
                row[one.name] = None
            elif one.kind is ColumnKind.TEXT:
                row[one.name] = csv_text(cell)
            elif one.kind is ColumnKind.BOOL:
                row[one.name] = {"true": True, "false": False}[cell]
            else:
                row[one.name] = json.loads(cell)
        yield row


def _nulls_marked(text: str) -> str:
    out, quoted, before = [], False, "\n"
    for letter in text:
        if letter == '"':
            quoted = not quoted
        if not quoted and letter in ",\n" and before in ",\n":
            out.append("\0null\0")
        out.append(letter)
        before = letter if not quoted else "x"
    return "".join(out)


# Hostile names.

HOSTILE = TableSchema(
    name="hostile",
    means="",
    columns=(
        text("text", "", lambda row: row[0]),
        maybe(text("nullable", "", lambda row: row[1])),
        texts("texts", "", lambda row: row[2]),
        ints("ints", "", lambda row: row[3]),
        maybe(int64("number", "", lambda row: row[4])),
        boolean("flag", "", lambda row: row[5]),
        json_text("document", "", lambda row: row[6]),
    ),
)
ODD = [
    "", " ", "=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\r\n", "'", "''quoted", 'a"b', '""', "a,b", "a\nb", "\0",
    "null", "\ud800", "a\udfffb", 'json:"x"', "json:", "ünïcode \u2028 😀", "\\ud800", "NaN", "\ufeffbom",
]  # fmt: skip
TEXTS = st.one_of(st.sampled_from(ODD), st.text(st.characters(codec=None, exclude_categories=()), max_size=8))
INT64 = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(
    st.tuples(
        TEXTS,
        st.none() | TEXTS,
        st.lists(TEXTS, max_size=3),
        st.lists(INT64, max_size=3),
        st.none() | INT64,
        st.booleans(),
        st.dictionaries(TEXTS, TEXTS, max_size=2).map(json.dumps),
    ),
    max_size=6,
)


@pytest.mark.parametrize("format_", FORMATS)
def test_every_text_comes_back_as_it_was(format_: str, tmp_path: Path) -> None:
    path = tmp_path / f"hostile.{format_}"

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the first loads much
    @given(ROWS)
    def comes_back(rows: list[tuple[Any, ...]]) -> None:
        with path.open("wb") as file:
            writer = writer_of(format_, HOSTILE, file)
            for row in rows:
                writer.write(HOSTILE.values(row))
            writer.close()
        names = [one.name for one in HOSTILE.columns]
        assert read_back(path, HOSTILE) == [
            {**dict(zip(names, row, strict=True)), "document": json.loads(row[6])} for row in rows
        ]

    comes_back()


@pytest.mark.parametrize("text", ODD)
def test_no_cell_of_csv_is_a_formula_to_a_spreadsheet(text: str) -> None:
    cell = formats.csv_line([text]).removeprefix('"')
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


# A log.


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> NodeLog:
    """Two groups on two shards: members come, one expires, offsets are committed, a restart in between."""
    home = str(tmp_path_factory.mktemp("logs") / "node-1")
    node = DiskNode(home, num_shards=2)
    node.create_topic("orders", 4)
    groups = {name: [node.member(name, "app-0", "orders").join()] for name in ("billing", "search")}
    for turn in range(30):
        for place, (name, members) in enumerate(groups.items()):
            if (turn + place) % 6 == 0:
                members.append(node.member(name, f"app-{turn}", "orders").join())
            elif (turn + place) % 7 == 0 and len(members) > 1:
                members.pop(0)
            members[0].commit({turn % 4: turn})
        node.pass_ms(500, *(member for members in groups.values() for member in members))
        if turn == 15:
            node.crash()
            node.start()
    node.stop()
    return open_node(home)


@pytest.fixture(scope="module", params=FORMATS)
def exported(request: pytest.FixtureRequest, log: NodeLog, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tables") / "new"
    done = export(log, folder, request.param)
    assert [one.table for one in done.files] == list(SCHEMAS)
    rows = {one.table: read_back(Path(one.path), SCHEMAS[one.table]) for one in done.files}
    assert {one.table: one.rows for one in done.files} == {name: len(of) for name, of in rows.items()}
    assert all(one.size == Path(one.path).stat().st_size for one in done.files)
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{n}.{request.param}" for n in SCHEMAS)
    return rows


def test_every_record_is_there_byte_for_byte(log: NodeLog, exported: Any) -> None:
    written = []
    for row in exported["records"]:
        shown = {"type": row["type"], "version": row["version"], "value": row["value"]}
        shown |= {"key_base64": row["key"]["base64"]} if "base64" in row["key"] else {"key": row["key"]}
        written.append((row["shard"], row["raft_index"], row["sequence"], shown))
    expected = [
        (shard, item.index, at, raw)
        for shard in log.shards
        for item in Walk(shard, log.reader(shard))
        if isinstance(item, Frame)
        for at, raw in enumerate(iter_records(item.body))
    ]
    assert [one[:3] for one in written] == [one[:3] for one in expected]
    for (_, _, _, shown), (_, _, _, raw) in zip(written, expected, strict=True):
        shown["type"] = type_of(raw)
        assert record_from_json(shown) == raw


def type_of(raw: Any) -> Any:
    from records.jsonform import record_to_json

    return record_to_json(raw)["type"]


def test_the_tables_are_the_facts(log: NodeLog, exported: Any) -> None:
    for name in ("billing", "search"):
        facts = facts_of(log, name)
        mine = {
            table: [row for row in rows if row.get("group_id") == name] for table, rows in exported.items()
        }
        assert [(row["epoch"], row["raft_index"], row["settled_ms"]) for row in mine["group_epochs"]] == [
            (row.epoch, row.index, row.settled_ms) for row in facts.epochs
        ]
        assert Counter(
            (r["topic"], r["partition"], r["kind"], r["member_id"], r["from_index"], r["to_ms"])
            for r in mine["ownership"]
        ) == Counter(
            (r.partition.topic, r.partition.partition, r.kind.value, r.member_id, r.from_index, r.to_ms)
            for r in facts.spans
        )
        assert {(r["member_id"], r["end"]) for r in mine["member_sessions"]} == {
            (r.member_id, r.end.value) for r in facts.sessions
        }
        assert len(mine["moves"]) == sum(len(row.moves) for row in facts.epochs) > 0
        assert len(mine["waits"]) == sum(len(row.waits) for row in facts.epochs) > 0
        assert [row["trigger"] for row in mine["group_epochs"]][:1] == ["MEMBER_JOINED"]
    kept = {key: [one.offset for one in of] for key, of in commits(log).items()}
    found: dict[Any, list[int]] = {}
    for row in exported["commits"]:
        found.setdefault((row["group_id"], row["topic"], row["partition"]), []).append(row["offset"])
    assert found == kept
    assert {row["shard"] for row in exported["failovers"]} == set(log.shards)
    assert len(exported["failovers"]) == 2 * len(log.shards)


def test_in_parts_the_same_rows(log: NodeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(log, tmp_path / "whole", "jsonl")
    monkeypatch.setattr(sources, "DRAIN_ENTRIES", 5)
    monkeypatch.setattr(formats, "ROWS_AT_ONCE", 3)
    export(log, tmp_path / "parts", "jsonl")
    export(log, tmp_path / "parts", "parquet")
    for name, table in SCHEMAS.items():
        whole = (tmp_path / "whole" / f"{name}.jsonl").read_text().splitlines()
        assert sorted((tmp_path / "parts" / f"{name}.jsonl").read_text().splitlines()) == sorted(whole)
        assert len(read_back(tmp_path / "parts" / f"{name}.parquet", table)) == len(whole)


def test_one_group_and_a_window(log: NodeLog, tmp_path: Path) -> None:
    facts = facts_of(log, "billing")
    first, second = facts.epochs[1], facts.epochs[3]
    window = LogWindow(from_index=first.index, to_index=second.index)
    export(log, tmp_path, "jsonl", groups=["billing"], window=window)
    rows = {name: read_back(tmp_path / f"{name}.jsonl", table) for name, table in SCHEMAS.items()}
    assert {row["group_id"] for name in rows if name != "failovers" for row in rows[name]} == {"billing"}
    indexes = [row["raft_index"] for row in rows["records"]]
    assert (min(indexes), max(indexes)) == (first.index, second.index)
    assert [row["epoch"] for row in rows["group_epochs"]] == [2, 3, 4]
    assert {row["epoch"] for row in rows["moves"]} <= {2, 3, 4}
    assert all(row["to_index"] is None or row["to_index"] > first.index for row in rows["ownership"])


# Refusals; whole files or none.


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_nothing_is_written_over_or_left_half(
    log: NodeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "commits.csv").write_text("mine")
    with pytest.raises(CannotWrite, match="already exists: --force"):
        export(log, tmp_path, "csv")
    assert _names(tmp_path) == ["commits.csv"]
    with monkeypatch.context() as patched:
        patched.setattr(sources.ShardRows, "_term", _fails)
        with pytest.raises(RuntimeError):
            export(log, tmp_path, "csv", force=True)
    assert _names(tmp_path) == ["commits.csv"]
    assert (tmp_path / "commits.csv").read_text() == "mine"
    with pytest.raises(NothingToRead, match="it has billing"):
        export(log, tmp_path, "csv", force=True, groups=["biling"])
    assert (tmp_path / "commits.csv").read_text() == "mine"
    export(log, tmp_path / "commits.csv", "csv", tables=["commits"], force=True)
    assert (tmp_path / "commits.csv").read_text().startswith('"group_id"')
    assert _names(tmp_path) == ["commits.csv"]


def _fails(*_: object) -> None:
    raise RuntimeError


def test_what_is_refused(log: NodeLog, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for output, format_, tables, said in (
        (tmp_path, "xlsx", [], "is not a format: use one of parquet, jsonl, csv"),
        (tmp_path, "csv", ["commit"], "there is no table 'commit': there are records"),
        (tmp_path / "all.csv", "csv", [], "is one file, but 9 tables"),
        (file, "csv", [], "is a file, not a folder"),
        (file / "below", "csv", [], "cannot write"),
    ):
        with pytest.raises(CannotWrite, match=said):
            export(log, output, format_, tables=tables)
    assert _names(tmp_path) == ["file"]


def test_two_exports_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with OutputFiles([path], force=False) as first:
        first.claim()
        with pytest.raises(CannotWrite, match="another export"), OutputFiles([path], force=False) as second:
            second.claim()
    assert _names(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full here")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_full_disk_is_told_of_the_file(
    format_: str, log: NodeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutputFiles, "_beside", staticmethod(lambda path: tmp_path / "full"))
    (tmp_path / "full").symlink_to("/dev/full")
    monkeypatch.setattr(files, "MODE", "wb")
    with pytest.raises(CannotWrite, match="No space left"):
        export(log, tmp_path / f"commits.{format_}", format_, tables=["commits"])
    assert _names(tmp_path) == []


def test_without_pyarrow_parquet_says_what_is_missing(
    log: NodeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CannotWrite, match=r"run `pip install -e '\.\[export\]'` in"):
        export(log, tmp_path, "parquet")
    assert _names(tmp_path) == []


# Documents, memory.


def test_the_page_on_the_pipeline_has_every_table() -> None:
    rows = [f"| `{table.name}` | {table.means} |" for table in SCHEMAS.values()]
    assert "\n".join(rows) in (ROOT / "docs" / "pipeline.md").read_text()


def test_every_column_is_listed() -> None:
    listed = "\n".join(tables_text())
    for table in SCHEMAS.values():
        assert f"### Table {table.name}\n\n{table.means}\n" in listed
        for one in table.columns:
            assert f"| `{one.name}` | {one.kind.exported}" in listed
            assert f"| {one.means} |" in listed


def test_a_story_without_an_import_of_causes(tmp_path: Path) -> None:
    log = opened(group_log().log, metadata=metadata_log().log)
    export(log, tmp_path, "jsonl", groups=[GROUP])
    (expired,) = [
        row
        for row in read_back(tmp_path / "group_epochs.jsonl", SCHEMAS["group_epochs"])
        if row["trigger"] == "SESSION_EXPIRED"
    ]
    assert (expired["reasons"], expired["time_to_stable_ms"], expired["certainty"]) == (
        ["SESSION_EXPIRED"],
        300,
        "RECORDED",
    )


def _peak(rounds: int, folder: Path, format_: str) -> int:
    reader = Repeating()
    reader.rounds = rounds
    tables = [name for name in SCHEMAS if name != "findings"]
    gc.collect()
    gc.disable()  # nothing here is a cycle, and what others left is not to be counted
    tracemalloc.start()
    export(opened(reader), folder, format_, tables=tables, force=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    gc.enable()
    return peak


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_three_times_the_log_takes_no_more_memory(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "DRAIN_ENTRIES", 100)
    monkeypatch.setattr(formats, "ROWS_AT_ONCE", 200)
    _peak(8, tmp_path, format_)
    peaks = {rounds: _peak(rounds, tmp_path, format_) for rounds in (8, 24)}
    assert peaks[24] < peaks[8] + 500_000, "the rows of the longer log are some megabytes"


def test_a_file_that_was_given_up_takes_what_a_writer_leaves_behind(tmp_path: Path) -> None:
    """On a full disk the Parquet writer writes once more when closed; the command prints no traceback."""
    output = OutputFiles([tmp_path / "a.parquet"], force=False)
    with output:
        output.claim()
        file = output[tmp_path / "a.parquet"]
    assert file.write(b"foot") == 4
    assert list(tmp_path.iterdir()) == []
