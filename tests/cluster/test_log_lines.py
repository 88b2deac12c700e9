"""The node's own log as JSON lines: one object per event, whatever the event contains."""

from __future__ import annotations

import datetime as dt
import io
import json
import logging
import shutil
import sys
from pathlib import Path

import pytest

from cluster.launching.launcher import LaunchError, launch_node
from cluster.log_lines import JsonLines, without_json
from cluster.main import EXIT_OK
from tests.support.real_cluster import log_text

FIELDS = ["timestamp", "level", "node", "logger", "message"]
AWKWARD = 'two\nlines, "quotes", \u2028, \x1b[31m, \ud800 and ünïcode'


def event(*, args: tuple[object, ...] = (), failed: bool = False) -> logging.LogRecord:
    exc_info = None
    if failed:
        try:
            raise ValueError(AWKWARD)
        except ValueError:
            exc_info = sys.exc_info()
    return logging.LogRecord("quorate.x", logging.WARNING, "x.py", 1, "said %s", args, exc_info)


def test_an_event_is_one_line_with_these_fields() -> None:
    record = event(args=(AWKWARD,))
    record.created = 1_772_334_000.0071
    line = JsonLines(3).format(record)
    assert line.isascii()
    assert line.splitlines() == [line]
    told = json.loads(line)
    assert list(told) == FIELDS
    assert told == {
        "timestamp": "2026-03-01T03:00:00.007Z",
        "level": "WARNING",
        "node": 3,
        "logger": "quorate.x",
        "message": f"said {AWKWARD}",
    }


def test_an_exception_is_a_field_of_its_event() -> None:
    line = JsonLines(1).format(event(args=("this",), failed=True))
    assert line.splitlines() == [line]
    told = json.loads(line)
    assert list(told) == [*FIELDS, "exception"]
    assert told["exception"].startswith("Traceback (most recent call last):\n")
    assert "ValueError: two\nlines" in told["exception"]


def test_a_handler_ends_each_event_with_one_newline() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(1))
    for _ in range(3):
        handler.handle(event(args=("a\nb",), failed=True))
    assert stream.getvalue().count("\n") == 3


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_real_node_logs_in_the_format_that_is_set(tmp_path: Path, log_format: str) -> None:
    node = launch_node(tmp_path / "node", settings={"log.format": log_format})
    try:
        assert node.stop() == EXIT_OK
    finally:
        node.kill()
    lines = log_text(node).splitlines()
    assert len(lines) >= 2
    if log_format == "text":
        assert all(" node 1 INFO quorate." in line or " node 1 WARNING quorate." in line for line in lines)
        return
    events = [json.loads(line) for line in lines]
    assert all(list(one) == FIELDS and one["node"] == 1 for one in events)
    assert "stopping: SIGTERM" in [one["message"] for one in events]
    times = [dt.datetime.fromisoformat(one["timestamp"]) for one in events]
    assert all(at.utcoffset() == dt.timedelta(0) for at in times)
    assert times == sorted(times)


def test_a_launcher_repeats_the_message_and_not_the_json(tmp_path: Path) -> None:
    node = launch_node(tmp_path / "node", settings={"log.format": "json"})
    try:
        node.stop()
        shutil.rmtree(node.data / "metadata")
        with pytest.raises(LaunchError, match=r"ended with exit code 70: metadata of") as refused:
            node.start()
    finally:
        node.kill()
    assert json.loads(log_text(node).splitlines()[-1])["message"] in str(refused.value)


@pytest.mark.parametrize("line", ["", "a b", "7", "[1]", '{"level": "INFO"}', '{"message": ', "null"])
def test_another_line_is_repeated_as_it_is(line: str) -> None:
    assert without_json(line) == line
