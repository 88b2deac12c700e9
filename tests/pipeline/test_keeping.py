"""Tables that are kept up to date: they equal those of one run over the same log. `tests/spark` kills it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from quorate.spark.errors import InputError, OutputBusy
from quorate.spark.runs.run import run
from quorate.spark.runs.stream import Batch, TableStream
from tests.pipeline.no_spark import no_session
from tests.support.disk_node import DiskNode
from tests.support.long_story import long_story
from tests.support.table_rows import exported, held

WAIT_S = 120.0


@contextmanager
def following(log: Path, output: Path) -> Iterator[Callable[[int], None]]:
    """Keep tables up to date with a log; yields a function that waits for an entry of shard 0."""
    news = threading.Condition()
    reached = [0]

    def tell(batch: Batch) -> None:
        with news:
            reached.append(batch.to.get(0, 0))
            news.notify_all()

    def wait(index: int) -> None:
        with news:
            assert news.wait_for(lambda: max(reached) >= index or not thread.is_alive(), WAIT_S)
            assert max(reached) >= index

    stream = TableStream(str(log), str(output), on_batch=tell)
    thread = threading.Thread(target=stream.run, args=(no_session,), kwargs={"every_s": 0.1})
    try:
        thread.start()
        yield wait
    finally:
        stream.stop()
        thread.join(WAIT_S)
        stream.close()


def last_index(log: Path) -> int:
    return max(int(row["raft_index"]) for row in exported(log, "records")["records"] if row["shard"] == 0)


def commit_more(node: DiskNode, count: int) -> None:
    ann = node.member("payments", "app-2", "orders").join()
    for offset in range(count):
        ann.commit({0: 1_000 + offset})
        if offset % 20 == 0:
            node.pass_ms(500, ann)


def test_tables_follow_a_log_and_have_one_writer(tmp_path: Path) -> None:
    log, output = tmp_path / "node", tmp_path / "tables"
    node, _ = long_story(str(log), commits=30)
    with following(log, output) as wait:
        wait(last_index(log))
        commit_more(node, 250)
        assert (log / "shard-0" / "archive").exists()
        wait(last_index(log))
    assert held(output) == exported(log)
    with following(log, output):
        commit_more(node, 5)
        with suppress(OutputBusy):  # or it commits first, and the stream goes on from there
            run(no_session, str(log), str(output))
    commit_more(node, 10)
    with following(log, output) as wait:
        wait(last_index(log))
        commit_more(node, 10)
        wait(last_index(log))
    assert held(output) == exported(log)


def test_what_cannot_be_followed_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError):
        TableStream(str(tmp_path / "nothing"), str(tmp_path / "tables"), on_batch=lambda _: None)
    assert not (tmp_path / "tables").exists()
