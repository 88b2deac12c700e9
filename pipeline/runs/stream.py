"""Tables that are kept up to date while the log grows.

    catch up   entries that are new at the start are taken in as `run` does
    follow     Spark's Structured Streaming asks the source where the log ends (`rows=spans`), writes that to
               its checkpoint, and hands over the new range; each batch is one `advance`

The invariant: the manifest defines the contents of the tables, and a batch starts where that ends. The
checkpoint only says that there is work: a batch that is repeated after a kill finds its entries in the tables
and does nothing, and a checkpoint that is lost, or ahead of the tables, loses no data.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import OptionError
from pipeline.session.failures import unwrapped
from pipeline.session.interrupting import interrupt, is_remote
from pipeline.source import register
from pipeline.source.following import FollowedInput
from pipeline.source.offsets import Offsets, admitted
from pipeline.tables.manifest import ShardProgress

from .run import MODES, RunResult, advance, open_output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT = Path("_quorate", "checkpoint")
"""Default location of the checkpoint, within the folder of the tables."""

STOP_S_MAX = 15.0
"""Seconds for which a stop waits for the current batch; running jobs are cancelled.

The batch checks for a stop between jobs. One that has not noticed by then dies with the process, and the
next start discards what it staged.
"""

NUDGE_S = 1
"""Seconds between cancellations of jobs that have started since, while a stop waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The outcome of one batch."""

    number: int
    """Counts from 1 within this process."""
    entries: int
    to: Mapping[int, int]
    """The last entry now in the tables, for each shard with new ones."""
    rows: Mapping[str, int]
    lost: tuple[str, ...]
    lag_ms: int
    """Milliseconds from the writing of its newest entry on the node to its rows in the tables."""
    seconds: float


EveryBatch = Callable[[Batch], None]


class _Stopped(Exception):
    """A stop was requested while a batch was running."""


class TableStream:
    """Keeps the tables in ``output`` up to date with the log at ``input_path`` until `stop`, from any thread.

    Opening it locks the output, so that no other run writes to it. Raises `PipelineError`: `InputError`,
    `OutputBusy`, …
    """

    def __init__(
        self,
        input_path: str,
        output_path: str,
        *,
        mode: str = "fail",
        checkpoint: str | None = None,
        entries_max: int | None = None,
        on_batch: EveryBatch,
    ) -> None:
        if mode not in MODES:
            raise OptionError(f"{mode!r} is not a mode", f"give {' or '.join(MODES)}")
        self._following = FollowedInput(input_path)
        opened = self._following.opened
        self._output = open_output(output_path, opened)
        self._checkpoint = _as_url(checkpoint or str(Path(self._output.root, CHECKPOINT)))
        self._mode = mode
        self._entries_max = entries_max
        self._on_batch = on_batch
        self._count = 0
        self._stopped = threading.Event()
        self._failure: Exception | None = None

    def close(self) -> None:
        """Release the output."""
        self._output.close()

    def stop(self) -> None:
        """Make `run` return soon; safe to call from a signal handler."""
        self._stopped.set()

    def run(self, spark: SparkSession, *, every_s: float | None) -> None:
        """Catch up, then continue until `stop`, a batch at most every ``every_s`` seconds (None: end)."""
        if is_remote(spark):
            hint = "use local[*], spark://, yarn or k8s; or `pipeline run` from time to time"
            raise OptionError("tables cannot be kept up to date over Spark Connect", hint)
        worker = threading.Thread(target=self._work, args=(spark, every_s), daemon=True)
        worker.start()
        while worker.is_alive() and not self._stopped.is_set():
            worker.join(NUDGE_S)
        until = time.monotonic() + STOP_S_MAX
        while worker.is_alive() and time.monotonic() < until:
            interrupt(spark)
            worker.join(NUDGE_S)
        if self._failure is not None and not self._stopped.is_set():
            raise unwrapped(self._failure) or self._failure

    def _work(self, spark: SparkSession, every_s: float | None) -> None:
        try:
            self._catch_up(spark)
            if every_s is not None and not self._stopped.is_set():
                self._wait_for(self._follow(spark, every_s))
        except Exception as error:  # raised by `run`, in the caller's thread
            self._failure = self._failure or error

    def _catch_up(self, spark: SparkSession) -> None:
        """Take everything that is decided now, in batches as large as allowed."""
        latest = {shard: one.index + 1 for shard, one in self._following.look().items()}
        taken: Offsets | None = None
        while (begin := self._begin()) != taken and not self._stopped.is_set():
            taken = begin  # a batch that yields nothing, as from an incomplete file, is not repeated
            self._take(spark, begin.to(admitted(begin, latest, self._entries_max)))

    def _follow(self, spark: SparkSession, every_s: float) -> StreamingQuery:
        register(spark)
        reader = spark.readStream.format("quorate").option("rows", "spans")
        reader = reader.option("starting_index", json.dumps(self._begin().document()["shards"]))
        if self._entries_max is not None:
            reader = reader.option("max_entries_per_trigger", str(self._entries_max))
        spans = reader.load(self._following.opened.path)
        writer = spans.writeStream.foreachBatch(lambda rows, _: self._on_spans(spark, rows))
        writer = writer.option("checkpointLocation", self._checkpoint)
        return writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds").start()

    def _wait_for(self, query: StreamingQuery) -> None:
        while not query.awaitTermination(NUDGE_S):
            if self._stopped.is_set():
                query.stop()

    def _on_spans(self, spark: SparkSession, rows: DataFrame) -> None:
        """Process Spark's next batch: one row per shard."""
        try:
            spans = {row["shard"]: (row["from_index"], row["to_index"]) for row in rows.collect()}
            self._take(spark, spans)
        except Exception as error:
            self._failure = error  # the original: Spark's wrapper runs to pages
            raise

    def _take(self, spark: SparkSession, spans: Mapping[int, tuple[int, int]]) -> None:
        """Process one batch, without the entries that the tables already have."""
        if not spans:
            return
        log = self._following.up_to({shard: last for shard, (_, last) in spans.items()})
        done = advance(
            spark, self._output, log, mode=self._mode, ranges=spans, on_progress=self._end_if_stopped
        )
        if not done.is_empty:
            self._count += 1
            self._on_batch(_batch(self._count, done))

    def _end_if_stopped(self, _: str) -> None:
        if self._stopped.is_set():
            raise _Stopped

    def _begin(self) -> Offsets:
        """The offsets at which the tables end."""
        progress = self._output.manifest.progress
        shards = self._following.opened.shards
        return Offsets(
            self._following.cluster_id,
            {shard: progress.get(shard, ShardProgress()).records_to + 1 for shard in shards},
        )


def _as_url(folder: str) -> str:
    """A file:// URL for a local folder, whatever Spark's default file system; URLs are left unchanged."""
    return folder if "://" in folder else f"file://{Path(folder).absolute()}"


def _batch(number: int, done: RunResult) -> Batch:
    newest_ms = max((one.to_ms for one in done.shards), default=-1)
    return Batch(
        number=number,
        entries=sum(one.to_index - one.from_index + 1 for one in done.shards),
        to={one.shard: one.to_index for one in done.shards},
        rows=done.rows,
        lost=done.lost,
        lag_ms=max(0, round(time.time() * 1000) - newest_ms) if newest_ms >= 0 else 0,
        seconds=done.seconds,
    )
