"""`quorate pipeline stream`: tables that are kept up to date while the log grows."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from quorate.commands.options import DEFAULT_DATA, Json, flag, option
from quorate.commands.pipeline.common import (
    Conf,
    DriverMemory,
    Input,
    Master,
    Mode,
    Output,
    SparkLogs,
    refusals,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import notify, print_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quorate.spark.runs.stream import Batch

STOPS = (signal.SIGINT, signal.SIGTERM)


def stream(
    output: Output,
    input: Input = str(DEFAULT_DATA),
    every: Annotated[
        str, option("--every", "SPAN", "Shortest time between batches, such as 10s or 500ms.")
    ] = "10s",
    once: Annotated[bool, flag("--once", "Read what exists now, then end.")] = False,
    max_entries: Annotated[
        int | None, option("--max-entries", "N", "Log entries in one batch. Default: all.", min=1)
    ] = None,
    mode: Mode = "fail",
    master: Master = None,
    driver_memory: DriverMemory = None,
    conf: Conf = None,
    spark_logs: SparkLogs = False,
    json: Json = False,
) -> None:
    """Keep the tables in a folder up to date while a node writes its log.

    Ends with Ctrl-C, and continues where it was when started again, however it ended: every entry is in the
    tables exactly once.

    Example: quorate pipeline stream --output tables --every 5s
    """
    every_s = _seconds(every)
    with refusals(), ExitStack() as session:
        from quorate.spark.session.sessions import require_pyspark, session_for
        from quorate.spark.session.settings import conf_from_options

        settings = conf_from_options(driver_memory, conf or [])
        require_pyspark()
        from quorate.spark.runs.stream import TableStream

        def start(size: int) -> SparkSession:
            notify("starting Spark")
            opened = session_for(master, name="quorate pipeline", conf=settings, spark_logs=spark_logs)
            return session.enter_context(opened)

        tell = _tell_json if json else _tell
        kept = TableStream(input, output, mode=mode, entries_max=max_entries, on_batch=tell)
        with closing(kept), _stopped_by_signals(kept.stop):
            notify(f"following {input}" if not once else f"reading {input}")
            kept.run(start, every_s=None if once else every_s)


def _seconds(span: str) -> float:
    from history.moments import parse_span

    try:
        return parse_span(span) / 1000
    except ValueError as error:
        raise CommandError(f"--every: {error}", code=ExitCode.USAGE) from None


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let signals stop the current work in an orderly way."""
    before = {one: signal.signal(one, lambda *_: stop()) for one in STOPS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _tell(batch: Batch) -> None:
    from history.render import duration, plural
    from history.words import shard_name

    reach = ", ".join(f"{shard_name(shard)} to {index}" for shard, index in sorted(batch.to.items()))
    notify(
        f"batch {batch.number}: {plural(batch.entries, 'entry')}, {reach}; {duration(batch.lag_ms)} behind"
        f" the node, {batch.seconds:.1f} s of work"
    )
    for lost in batch.lost:
        notify(f"note: {lost}")


def _tell_json(batch: Batch) -> None:
    print_json(asdict(batch))
