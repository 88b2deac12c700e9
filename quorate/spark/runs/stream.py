"""Tables that are kept up to date while the log grows: one run after another.

Each look costs what is new: the ends of the files that grow. The tables alone say where a batch starts, so
that a stream which ended in any way goes on where its last commit ended, and takes every entry in once. Spark
is started by the first batch that is too large for this process.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.spark.errors import OptionError, OutputBusy
from quorate.spark.session.sessions import present_session
from quorate.spark.source.following import FollowedInput
from quorate.spark.source.offsets import Offsets, admitted
from quorate.spark.tables.progress import ShardProgress

from .run import MODES, RunResult, advance, open_output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .step import Start

STOP_S_MAX = 15.0
"""Seconds for which a stop waits for the current batch; running jobs are cancelled.

A batch that has not noticed by then dies with the process, and nothing of it is in the tables.
"""

BUSY_MAX = 5
"""Batches in a row that may lose to another run's commit: two streams must not go on like this for ever."""

LOOK_AGAIN_S = 60.0
"""Seconds after which a quiet stream looks for new evidence, and for files that were restored."""

BUSY_S = 0.2
"""Seconds for which a stream waits at most after it lost once; twice as long each time that it loses again.

The wait is random: two that commit at the same time each win some of the tables, and otherwise both lose.
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
    """New rows by table."""
    rewritten: Mapping[str, int]
    lost: tuple[str, ...]
    lag_ms: int
    """Milliseconds from the writing of its newest entry on the node to its rows in the tables."""
    seconds: float


EveryBatch = Callable[[Batch], None]


class _Stopped(Exception):
    """A stop was requested while a batch was running."""


class TableStream:
    """Keeps the tables in ``output`` up to date with the log at ``input_path`` until `stop`, from any thread.

    Raises `PipelineError`: `InputError`, `OutputBusy` if another
    stream writes to the output, …
    """

    def __init__(
        self,
        input_path: str,
        output_path: str,
        *,
        mode: str = "fail",
        entries_max: int | None = None,
        on_batch: EveryBatch,
    ) -> None:
        if mode not in MODES:
            raise OptionError(f"{mode!r} is not a mode", f"give {' or '.join(MODES)}")
        self._following = FollowedInput(input_path)
        self._output_path = output_path
        self._output = open_output(output_path, self._following.opened)
        self._mode = mode
        self._entries_max = entries_max
        self._on_batch = on_batch
        self._count = self._busy = 0
        self._look_again_at = 0.0
        self._stopped = threading.Event()
        self._failure: BaseException | None = None

    def close(self) -> None:
        """Release the output."""
        self._output.close()

    def stop(self) -> None:
        """Make `run` return soon; safe to call from a signal handler."""
        self._stopped.set()

    def run(self, spark: SparkSession | Start, *, every_s: float | None) -> None:
        """Catch up, then continue until `stop`, a batch at most every ``every_s`` seconds (None: end)."""
        worker = threading.Thread(target=self._work, args=(spark, every_s), daemon=True)
        worker.start()
        while worker.is_alive() and not self._stopped.is_set():
            worker.join(NUDGE_S)
        until = time.monotonic() + STOP_S_MAX
        while worker.is_alive() and time.monotonic() < until:
            session = present_session()
            if session is not None:
                session.interruptAll()
            worker.join(NUDGE_S)
        if self._failure is not None and not self._stopped.is_set():
            raise self._failure

    def _work(self, spark: SparkSession | Start, every_s: float | None) -> None:
        try:
            while not self._stopped.is_set():
                begun = time.monotonic()
                while self._took(spark) and not self._stopped.is_set():
                    pass
                if every_s is None:
                    return
                self._stopped.wait(max(0.0, begun + every_s - time.monotonic()))
        except BaseException as error:  # raised by `run`, in the caller's thread
            self._failure = error

    def _took(self, spark: SparkSession | Start) -> bool:
        """Take in a batch; if another run commits to the output meanwhile, go on from there."""
        try:
            is_more = self._take(spark)
        except OutputBusy:
            self._busy += 1
            if self._busy > BUSY_MAX:
                raise
            self._stopped.wait(random.uniform(0, BUSY_S * 2**self._busy))
            self._output.close()
            self._output = open_output(self._output_path, self._following.opened)
            return True
        self._busy = 0
        return is_more

    def _take(self, spark: SparkSession | Start) -> bool:
        """Take in what is decided, as far as a batch may go; returns whether more may be there."""
        begin = self._begin()
        latest = {shard: one.index + 1 for shard, one in self._following.look().items()}
        spans = begin.to(admitted(begin, latest, self._entries_max))
        if not spans and time.monotonic() < self._look_again_at:
            return False
        self._look_again_at = time.monotonic() + LOOK_AGAIN_S
        log = self._following.up_to({shard: last for shard, (_, last) in spans.items()})
        done = advance(
            spark, self._output, log, mode=self._mode, ranges=spans, on_progress=self._end_if_stopped
        )
        if not done.is_empty:
            self._count += 1
            self._on_batch(_batch(self._count, done))
        return self._entries_max is not None and self._begin() != begin  # a torn end yields nothing

    def _end_if_stopped(self, _: str) -> None:
        if self._stopped.is_set():
            raise _Stopped

    def _begin(self) -> Offsets:
        """The offsets at which the tables end."""
        shards = self._output.progress.shards
        return Offsets(
            self._following.cluster_id,
            {one: shards.get(one, ShardProgress()).records_to + 1 for one in self._following.opened.shards},
        )


def _batch(number: int, done: RunResult) -> Batch:
    newest_ms = max((one.to_ms for one in done.shards), default=-1)
    return Batch(
        number=number,
        entries=sum(one.to_index - one.from_index + 1 for one in done.shards),
        to={one.shard: one.to_index for one in done.shards},
        rows=done.rows,
        rewritten=done.rewritten,
        lost=done.lost,
        lag_ms=max(0, round(time.time() * 1000) - newest_ms) if newest_ms >= 0 else 0,
        seconds=done.seconds,
    )
