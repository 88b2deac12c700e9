"""The terms that facts need: the new ones, and the newest before them in each shard.

There may be a file of terms for every day of several years, so each run notes the newest term of each shard
for the next one. The invariant: the note only counts while the table has as many terms as it had then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from history.facts.rows import TermRow
from pipeline.errors import InputError
from pipeline.schema import TABLES, arrow_type
from pipeline.tables import local
from pipeline.tables.transaction import Staging

from .factinputs import STATES
from .factspans import FactSpan
from .projections import TERMS_HINT, TERMS_MAX
from .step import RunStep

if TYPE_CHECKING:
    from pipeline.tables.output import Output

NEWEST = "terms"
"""The part of `STATES` that holds the newest terms."""
Term = Mapping[str, Any]
"""A row of table `failovers`."""


def terms_of(step: RunStep, spans: Mapping[int, FactSpan]) -> Mapping[int, Sequence[TermRow]]:
    """The new terms of each shard, and the newest before them, by index."""
    progress = step.output.manifest.progress
    is_behind = any(s in progress and span.from_index <= progress[s].records_to for s, span in spans.items())
    known = _terms(step.output) if is_behind else newest_terms(step.output).values()
    rows: list[Term] = []
    before: dict[int, Term] = {}
    for row in (*known, *_new_terms(step)):
        shard, index = row["shard"], row["raft_index"]
        if shard not in spans:
            continue
        if index >= spans[shard].from_index:
            rows.append(row)
        else:
            _keep_newest(before, row)
    if len(rows) > TERMS_MAX:
        raise InputError(f"there are more than {TERMS_MAX:,} new terms", TERMS_HINT)
    found: dict[int, list[TermRow]] = {}
    for row in sorted([*rows, *before.values()], key=lambda row: (row["shard"], row["raft_index"])):
        found.setdefault(row["shard"], []).append(_term(row))
    return found


def newest_terms(output: Output) -> dict[int, Term]:
    """The newest term of each shard, from the note of the last run, else from all files of terms."""
    noted = local.read_all(output.root, output.manifest.of(STATES, NEWEST), _noted_type()).to_pylist()
    if noted and noted[0]["of_terms"] == _num_terms(output):
        return {row["shard"]: row for row in noted}
    found: dict[int, Term] = {}
    for row in _terms(output):
        _keep_newest(found, row)
    return found


def write_newest_terms(step: RunStep) -> None:
    """Note the newest terms for the next run, unless they are noted already."""
    there, of_terms = step.output.manifest.of(STATES, NEWEST), _num_terms(step.output)
    new = _new_terms(step)
    if not new and (there or not of_terms):
        return
    newest = newest_terms(step.output)
    for row in new:
        _keep_newest(newest, row)
    noted = [{**row, "of_terms": of_terms + len(new)} for row in newest.values()]
    rows = pa.Table.from_pylist(noted, _noted_type())
    step.tx.stage(Staging(table=STATES, rows=rows, part=NEWEST, instead_of=there))


def _noted_type() -> pa.Schema:
    """A term, and the total number of terms; an older release adds terms without updating the note."""
    return arrow_type(TABLES["failovers"].columns).append(pa.field("of_terms", pa.int64()))


def _num_terms(output: Output) -> int:
    return sum(file.rows for file in output.manifest.of("failovers"))


def _terms(output: Output) -> Iterator[Term]:
    """Every term of any run, read one file at a time; there is a file per day with an election."""
    schema = arrow_type(TABLES["failovers"].columns)
    for file in output.manifest.of("failovers"):
        yield from local.read_all(output.root, [file], schema).to_pylist()


def _new_terms(step: RunStep) -> list[Term]:
    return [] if step.terms is None else list(step.terms.to_pylist())


def _keep_newest(found: dict[int, Term], row: Term) -> None:
    shard = row["shard"]
    if shard not in found or row["raft_index"] > found[shard]["raft_index"]:
        found[shard] = row


def _term(row: Term) -> TermRow:
    previous = row["previous_leader"]
    return TermRow(
        shard=row["shard"],
        term=row["term"],
        index=row["raft_index"],
        timestamp_ms=row["timestamp_ms"],
        node_id=row["node_id"],
        previous_leader=-1 if previous is None else previous,
        why=row["why"],
        is_takeover=row["is_takeover"],
        gap_ms=row["gap_ms"],
    )
