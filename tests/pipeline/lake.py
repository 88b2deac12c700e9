"""Small tables for tests of `quorate.spark.tables`: runs that add and replace rows, and deaths at a call."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from quorate.spark.tables import (
    FileWriter,
    Output,
    Progress,
    ShardProgress,
    WrittenFile,
    arrow_table,
    delta,
    names,
    read_progress,
)

CLUSTER = "cluster-1"
TABLES = ("records", "commits", "moves", "ownership")
T = TypeVar("T")


class DiedHere(BaseException):
    """Stands for the death of the process: it passes every handler of errors."""


def rows_of(table: str, *groups: str, at: int = 1, **columns: list[Any]) -> pa.Table:
    """Return one row for each group; ``at`` is in every number, so that rows of different runs differ."""
    made = {}
    for field in names.schema_of(table):
        kind = field.type
        if field.name in columns:
            made[field.name] = pa.array(columns[field.name], kind)
        elif field.name == "group_id":
            made[field.name] = pa.array(groups, kind)
        elif pa.types.is_integer(kind):
            made[field.name] = pa.array([at] * len(groups), kind)
        elif pa.types.is_string(kind):
            made[field.name] = pa.array(["x"] * len(groups), kind)
        elif pa.types.is_binary(kind):
            made[field.name] = pa.array([b"x"] * len(groups), kind)
        elif pa.types.is_list(kind):
            made[field.name] = pa.array([[]] * len(groups), kind)
        elif pa.types.is_boolean(kind):
            made[field.name] = pa.array([True] * len(groups), kind)
        elif pa.types.is_timestamp(kind):
            made[field.name] = pa.array([at * 1000] * len(groups), pa.int64()).cast(kind)
        else:
            made[field.name] = pa.array([None] * len(groups), kind)
    return pa.Table.from_arrays(list(made.values()), schema=names.schema_of(table))


def written(output: Output, table: str, rows: pa.Table, part: str = "rows") -> list[WrittenFile]:
    with FileWriter(output.store, table, part, rows.schema) as writer:
        writer.write(rows)
        return writer.close()


def add_run(output: Output, at: int, *, tables: tuple[str, ...] = TABLES) -> Progress:
    """Add a row of group ``g-AT`` to `rows` of each table, and replace its part `open` by another row."""
    with output.begin() as transaction:
        for table in tables:
            transaction.add(written(output, table, rows_of(table, f"g-{at}", at=at)))
            transaction.add(written(output, table, rows_of(table, f"open-{at}", at=at), "open"))
            transaction.remove(table, output.files(table, "open"))
        shards = {0: ShardProgress(records_to=at, facts_to=at, last_ms=at * 1000)}
        return transaction.commit(replace(output.progress, shards=shards))


def run_at(url: str, at: int, **how: Any) -> Progress:
    with Output.open(url, cluster_id=CLUSTER, num_shards=1) as output:
        return add_run(output, at, **how)


def seen(url: str) -> tuple[int, dict[str, list[str]]]:
    """Return the run that a reader sees, and the groups of each table."""
    run = read_progress(url).run
    groups = {t: sorted(arrow_table(url, t, ["group_id"])["group_id"].to_pylist()) for t in TABLES}
    return run, groups


def expected(*runs: int) -> tuple[int, dict[str, list[str]]]:
    """Return what `seen` says after these runs of `add_run`."""
    groups = sorted([f"g-{at}" for at in runs] + [f"open-{runs[-1]}"] if runs else [])
    return len(runs), dict.fromkeys(TABLES, groups)


class Calls:
    """Takes the place of `delta.call`: lists the calls, and dies before or after one of them."""

    def __init__(self, die_at: int | None = None, *, before: bool = True, really: bool = False) -> None:
        self.made: list[tuple[str, str]] = []
        self._die_at, self._before, self._really = die_at, before, really
        self._is_dead = False

    def __call__(self, what: str, table: str, function: Callable[[], T]) -> T:
        if self._is_dead:
            raise DiedHere
        self.made.append((what, table))
        is_here = len(self.made) - 1 == self._die_at
        if is_here and self._before:
            self._die()
        result = function()
        if is_here:
            self._die()
        return result

    def _die(self) -> None:
        if self._really:
            os.kill(os.getpid(), signal.SIGKILL)
        self._is_dead = True
        raise DiedHere


def calls(monkeypatch: pytest.MonkeyPatch, *at: int, **how: Any) -> Calls:
    """Install `Calls`, with one table committed at a time."""
    from quorate.spark.tables import output, transaction

    made = Calls(*at, **how)
    monkeypatch.setattr(delta, "call", made)
    monkeypatch.setattr(transaction, "SIDE_BY_SIDE", 1)
    monkeypatch.setattr(output, "CHECKS", 1)
    return made
