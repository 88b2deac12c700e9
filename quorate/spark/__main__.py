"""The pipeline as a standalone program, for spark-submit on a cluster.

    python -m quorate.spark zip quorate.zip      our code, for --py-files
    spark-submit --py-files quorate.zip …/quorate/spark/__main__.py run --input DIR --output DIR

spark-submit configures Spark (master, memory, settings), so there are no options for it here. Started without
spark-submit, it runs Spark locally. `quorate pipeline` is the same command with options for Spark.
"""

from __future__ import annotations

import os
import sys

if not __package__:  # run as a file: its folder would shadow other packages' `tables` and the like
    sys.path[:] = [
        one for one in sys.path if os.path.abspath(one) != os.path.dirname(os.path.abspath(__file__))
    ]

import argparse
import json
import shlex
import signal
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.spark.errors import NoSpark, OptionError, OutputError, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quorate.spark.runs.run import RunResult
    from quorate.spark.runs.stream import Batch

FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a failure prints one line and returns exit code 1."""
    words = sys.argv[1:] if arguments is None else arguments
    given = parser().parse_args(words, argparse.Namespace(words=words))
    try:
        given.call(given)
    except Exception as error:
        from quorate.spark.session.failures import unwrapped

        told = _missing(error) or unwrapped(error)
        if told is None:
            raise
        print(f"pipeline: error: {told}", file=sys.stderr)
        return FAILED
    return 0


def parser() -> argparse.ArgumentParser:
    """The argument parser with all commands and options."""
    made = argparse.ArgumentParser(prog="pipeline", description="Quorate's logs as Spark tables.")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "-i", "--input", required=True, metavar="DIR", help="a node's directory, a cluster's, or a copy"
    )
    shared.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder of the tables")
    shared.add_argument("--mode", default="fail", choices=("fail", "permissive"), help="how to handle damage")
    shared.add_argument("--json", action="store_true", help="print JSON instead of text")
    run = commands.add_parser(
        "run", parents=[shared], help="bring the tables up to the last committed entry of a log"
    )
    run.add_argument("--report", metavar="FILE", type=Path, help="write an HTML page of the tables")
    run.add_argument("--force", action="store_true", help="overwrite FILE if it exists")
    run.set_defaults(call=_run)
    stream = commands.add_parser(
        "stream", parents=[shared], help="keep tables up to date while a node writes its log"
    )
    stream.add_argument("--every", default="10s", metavar="SPAN", help="shortest time between batches (10s)")
    stream.add_argument("--once", action="store_true", help="read what exists now, then end")
    stream.add_argument(
        "--max-entries", type=int, metavar="N", help=("log entries in one batch (default: all)")
    )
    stream.set_defaults(call=_stream)
    zipped = commands.add_parser("zip", help="write Quorate's code as a zip for spark-submit --py-files")
    zipped.add_argument("file", metavar="OUT.zip", type=Path)
    zipped.set_defaults(call=_zip)
    return made


def _missing(error: Exception) -> PipelineError | None:
    """An error for a missing third-party package; None if ``error`` is anything else."""
    ours = ("records", "coordinator", "raftlog", "history", "quorate")
    if not isinstance(error, ModuleNotFoundError) or (error.name or "").partition(".")[0] in ours:
        return None
    from records.installation import how_to_install

    return NoSpark(f"{error.name} is not installed", how_to_install("spark"))


def _run(given: argparse.Namespace) -> None:
    from quorate.spark.session.sessions import require_pyspark, session_for

    if given.report is not None:
        _claim(given.report, force=given.force)
    require_pyspark()
    from quorate.spark.runs.run import run

    with ExitStack() as stack:

        def start(size: int = 0) -> SparkSession:
            return stack.enter_context(session_for(name="quorate pipeline"))

        done = run(start, given.input, given.output, mode=given.mode, on_progress=_say)
        if given.json:
            print(json.dumps(asdict(done)))
        else:
            _tell(done)
        if given.report is not None:
            _write_report(given.report, start(), given, done.remarks)


def _stream(given: argparse.Namespace) -> None:
    from quorate.spark.session.sessions import require_pyspark, session_for

    require_pyspark()
    from history.moments import parse_span
    from quorate.spark.runs.stream import TableStream

    try:
        every_s = parse_span(given.every) / 1000
    except ValueError as error:
        raise OptionError(f"--every: {error}") from None
    if given.max_entries is not None and given.max_entries < 1:
        raise OptionError(f"--max-entries {given.max_entries} is not a number above 0")
    kept = TableStream(
        given.input,
        given.output,
        mode=given.mode,
        entries_max=given.max_entries,
        on_batch=_tell_batch_json if given.json else _tell_batch,
    )
    with closing(kept), ExitStack() as stack:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, lambda *_: kept.stop())

        def start(size: int) -> SparkSession:
            return stack.enter_context(session_for(name="quorate pipeline"))

        kept.run(start, every_s=None if given.once else every_s)


def _tell(done: RunResult) -> None:
    if done.is_empty:
        print(f"nothing new: {done.output} has every committed entry of {done.input}")
    for table, count in done.rows.items():
        print(f"{table}: {count} new rows, {done.rewritten.get(table, 0)} written again")
    for remark in (*done.lost, *done.remarks):
        print(f"note: {remark}")


def _tell_batch_json(batch: Batch) -> None:
    print(json.dumps(asdict(batch)), flush=True)


def _tell_batch(batch: Batch) -> None:
    print(f"batch {batch.number}: {batch.entries} entries, {batch.lag_ms} ms behind the node", flush=True)
    for lost in batch.lost:
        print(f"note: {lost}", flush=True)


def _claim(path: Path, *, force: bool) -> None:
    """Raise before any work is done if the report could not be written at the end."""
    try:
        _check(path, force=force)
    except OSError as error:  # a directory that this user may not enter
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error


def _check(path: Path, *, force: bool) -> None:
    if not path.parent.is_dir():
        raise OptionError(
            f"cannot write {path}: there is no directory {path.parent}", "give a file elsewhere"
        )
    if path.exists() and not path.is_file():
        raise OptionError(f"{path} is not a regular file", "give a file elsewhere")
    if path.exists() and not force:
        raise OptionError(f"{path} already exists", "--force overwrites it")


def _write_report(path: Path, spark: SparkSession, given: argparse.Namespace, remarks: Sequence[str]) -> None:
    from quorate.spark.runs.reporting import report_of

    command = f"python -m quorate.spark {shlex.join(given.words)}"
    page = report_of(spark, given.output, command=command, source=given.input, remarks=remarks)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(page, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error
    _say(f"wrote {path}")


def _zip(given: argparse.Namespace) -> None:
    from quorate.spark.session.shipping import write_zip

    write_zip(given.file)
    print(f"wrote {given.file}; run for example")
    print(f"spark-submit --py-files {given.file} {os.path.abspath(__file__)} run --input DIR --output DIR")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
