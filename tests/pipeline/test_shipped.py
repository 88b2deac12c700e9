"""A node ships its log to a store; the pipeline makes tables of it there, in the same store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("moto.server", reason="needs moto[s3] and flask-cors")

from history.checking.verify import report_text, verify
from quorate.spark.errors import PipelineError
from quorate.spark.runs.run import advance, open_output, run
from quorate.spark.schema import TABLES
from quorate.spark.source.inputs import open_input
from quorate.spark.tables.reading import read_progress
from raftlog.env.files import OsFiles
from raftlog.offline.reader import ShardReader
from raftlog.storage import shipping
from tests.pipeline.grown import Story
from tests.pipeline.no_spark import no_session
from tests.support.object_stores import Refusals, copy
from tests.support.table_rows import Rows, held

pytestmark = pytest.mark.thorough


def _told(story: Story, chapters: int) -> None:
    """Go on until segments were sealed."""
    for _ in range(chapters):
        story.chapter()
    story.node.pass_ms(30_000)


def _ship(story: Story, url: str) -> dict[int, int]:
    """Ship as the node's own job does; returns the last entry of each shard in the place."""
    committed = max(frame.index for frame in ShardReader(story.path, -1).frames())
    done = shipping.run({"path": story.path, "url": url, "committed": [[-1, committed]]}, OsFiles())
    assert done.get("left") == 0, done
    ends = {**dict(done["last_indexes"]), -1: committed}
    return {shard: last for shard, last in ends.items() if last}


def _tables_of(story: Story, output: Path, ends: dict[int, int]) -> dict[str, Rows]:
    """The tables made of the node's own directory, up to these entries."""
    log = open_input(story.path)
    with open_output(str(output), log) as opened:
        before = opened.progress.shards
        begins = {shard: before[shard].records_to + 1 if shard in before else 1 for shard in ends}
        ranges = {shard: (begins[shard], end) for shard, end in ends.items() if end >= begins[shard]}
        advance(no_session, opened, log, ranges=ranges)
    return held(output)


def test_tables_of_a_place_are_those_of_the_directory_and_later_runs_add_the_rest(
    bucket: str, tmp_path: Path
) -> None:
    story = Story(str(tmp_path / "cluster" / "node-1"))
    place, output, local = f"{bucket}/logs", f"{bucket}/tables", tmp_path / "tables"
    seen = []
    for _ in range(3):
        _told(story, 2)
        ends = _ship(story, place)
        done = run(no_session, place, output)
        assert done.lost == ()
        assert {shard: one.records_to for shard, one in read_progress(output).shards.items()} == ends
        expected = _tables_of(story, local, ends)
        assert held(output) == expected
        report = verify(f"{place}/node-1")
        assert report.ok, list(report_text(report))
        assert any("shipped this here" in note for note in report.notes)
        seen.append({table: len(expected[table]) for table in TABLES})
    assert seen[0]["records"] < seen[1]["records"] < seen[2]["records"]
    assert seen[-1]["group_epochs"]
    assert {row["topic"] for row in held(output, "commits")["commits"]} == {"orders"}
    assert run(no_session, place, output).is_empty


@dataclass(frozen=True)
class Shipped:
    """A shipped log, an output that lacks its last chapter, and what is and would be in that."""

    place: str
    output: str
    before: dict[str, Rows]
    wanted: dict[str, Rows]
    requests: int
    """Requests of a run that makes all tables."""


@pytest.fixture(scope="module")
def shipped(bucket: str, refusals: Refusals, tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    story = Story(str(tmp_path_factory.mktemp("cluster") / "node-1"))
    place, output, whole = (f"{bucket}/refused/{name}" for name in ("logs", "tables", "whole"))
    _told(story, 2)
    _ship(story, place)
    run(no_session, place, output)
    _told(story, 1)
    _ship(story, place)
    begun = refusals.requests
    run(no_session, place, whole)
    return Shipped(place, output, held(output), held(whole), refusals.requests - begun)


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(503, "SlowDown", "overloaded or out of order"), (400, "ExpiredToken", "credentials")],
)
@pytest.mark.parametrize("share", [0.05, 0.4])
def test_a_store_that_refuses_in_the_middle_of_a_run_is_one_line_and_changes_nothing(
    status: int,
    code: str,
    words: str,
    share: float,
    shipped: Shipped,
    refusals: Refusals,
    few_attempts: None,
) -> None:
    output = f"{shipped.output}-{code}-{share}"
    copy(shipped.output, output)
    refusals.refuse(status, code, after=int(shipped.requests * share))
    try:
        with pytest.raises(PipelineError, match=words) as refused:
            run(no_session, shipped.place, output)
    finally:
        refusals.answer()
    assert "\n" not in str(refused.value)
    assert held(output) == shipped.before
    run(no_session, shipped.place, output)
    assert held(output) == shipped.wanted
