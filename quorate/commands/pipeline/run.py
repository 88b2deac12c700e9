"""`quorate pipeline run`: brings tables up to the last committed entry, and reports on them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.commands.log.pagefile import Force, claim, write_page
from quorate.commands.options import DEFAULT_DATA, Json, option, typed
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
from quorate.output import notify, print_json, print_table, say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quorate.spark.runs.run import RunResult

BRIEF_BYTES = 16 << 20
"""Bytes of segments or tables (some 200,000 records) that are read within seconds."""


def run(
    output: Output,
    input: Input = str(DEFAULT_DATA),
    mode: Mode = "fail",
    report: Annotated[Path | None, option("--report", "FILE", "Write an HTML page of the tables.")] = None,
    force: Force = False,
    master: Master = None,
    driver_memory: DriverMemory = None,
    conf: Conf = None,
    spark_logs: SparkLogs = False,
    json: Json = False,
) -> None:
    """Bring the tables in a folder up to the last committed entry of a log.

    Only entries that no run has read yet are read. New rows appear in the tables all at once, or not at all.

    Example: quorate pipeline run --output tables --report report.html
    """
    if report is not None:
        claim(report, force=force)
    with _ended_in_order(), refusals(), ExitStack() as session:
        from quorate.spark.session.sessions import present_session, require_pyspark, session_for
        from quorate.spark.session.settings import conf_from_options

        settings = conf_from_options(driver_memory, conf or [])
        require_pyspark()
        from quorate.spark.runs.run import run as bring_up_to_date

        def start(size: int) -> SparkSession:
            if present_session() is None:
                notify("starting Spark")
            opened = session_for(
                master,
                name="quorate pipeline",
                conf=settings,
                spark_logs=spark_logs,
                is_brief=size <= BRIEF_BYTES,
            )
            return session.enter_context(opened)

        done = bring_up_to_date(start, input, output, mode=mode, on_progress=notify)
        if json:
            print_json(asdict(done))
        else:
            _show(done)
        if report is not None:
            from quorate.spark.runs.listing import size_of
            from quorate.spark.runs.reporting import report_of

            page = report_of(
                start(size_of(output)), output, command=typed(), source=input, remarks=done.remarks
            )
            notify(write_page(report, page, force=force))


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does: cancel Spark's jobs and discard staged data."""
    is_told = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal is_told
        is_told = True
        # PySpark's handler, which cancels jobs, if Spark is running
        interrupt = signal.getsignal(signal.SIGINT)
        if callable(interrupt):
            interrupt(signal.SIGINT, frame)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        if not is_told:
            raise
        notify("stopped: the tables are as of the last commit")
        raise typer.Exit(128 + signal.SIGTERM) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(done: RunResult) -> None:
    if done.is_empty:
        missing = ", except those noted below" if done.lost else ""
        say(f"nothing new: {done.output} has every committed entry of {done.input}{missing}")
    else:
        rows = [(table, count, done.rewritten.get(table, 0)) for table, count in done.rows.items()]
        print_table(["TABLE", "NEW ROWS", "WRITTEN AGAIN"], rows)
    for remark in (*done.lost, *done.remarks):
        say(f"note: {remark}")
