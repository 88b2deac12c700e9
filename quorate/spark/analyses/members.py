"""Members that repeatedly leave and rejoin: the rule of `history.diagnoses.members` on `member_sessions`.

The same code runs on one group's sessions at a time, with one difference: the table records how often a
member rejoined within a session, but not when. A member that only rejoins and never leaves is therefore only
found by the rule `FLAPPING_MEMBER` in table `findings`, as are the partitions that a process held.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from history.diagnoses.members import Flapping, flaps
from history.export.columns import int32, text, texts
from history.facts.rows import MemberSession, SessionEnd
from quorate.spark.milliseconds import in_milliseconds
from quorate.spark.schema import TABLES, arrow_type, columns_named, micros, spark_type

from .keys import GROUP
from .registry import Analysis
from .streams import Row, groups_of, in_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

_TAKEN = (
    *GROUP,
    "member_id",
    "instance_id",
    "client_id",
    "client_host",
    "from_index",
    "from_ms",
    "to_index",
    "to_ms",
    "end",
)


def flapping_members(member_sessions: DataFrame) -> DataFrame:
    """Processes that repeatedly joined, left and joined again."""
    stays = in_groups(in_milliseconds(member_sessions).select(*_TAKEN), GROUP, "from_index", "member_id")
    return stays.mapInArrow(flapping_of, spark_type(FLAPPING_COLUMNS))


def flapping_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Flapping processes in batches whose rows are ordered by group, with moments in ms."""
    schema = arrow_type(FLAPPING_COLUMNS)
    for key, rows in groups_of(batches, GROUP):
        found = [_row(key, one) for one in flaps([_session(row) for row in rows])]
        if found:
            yield pa.RecordBatch.from_pylist(found, schema)


def _session(row: Row) -> MemberSession:
    """The fields that the rule uses; all others get placeholder values."""
    return MemberSession(
        **{name: row[name] for name in _TAKEN if name not in ("cluster_id", "end")},
        end=_end(row["end"]),
        timeout_ms=None,
        last_heartbeat_ms=None,
        deadline_ms=None,
        rejoins=0,
        aways=(),
    )


def _end(word: str | None) -> SessionEnd:
    """The way a session ended; a value unknown to this release becomes `UNKNOWN`."""
    return SessionEnd(word) if word in _ENDS else SessionEnd.UNKNOWN


_ENDS = frozenset(end.value for end in SessionEnd)


def _row(key: tuple[object, ...], one: Flapping) -> Row:
    first, (last_index, last_ms) = one.stays[0], one.returns[-1]
    return {
        **dict(zip(GROUP, key, strict=True)),
        "process": one.process,
        "returns": len(one.returns),
        "members": list(one.member_ids),
        "from_index": first.from_index,
        "from_time": micros(first.from_ms),
        "to_index": last_index,
        "to_time": micros(last_ms),
        "ended": one.how,
    }


_FINDING = TABLES["findings"].columns
FLAPPING_COLUMNS = (
    *columns_named(_FINDING, ["cluster_id", "group_id", "shard"]),
    text("process", "What identifies the process: its instance id, its member id, or client id and host."),
    int32("returns", "How often it returned."),
    texts("members", "Its member ids, the newest first."),
    *columns_named(_FINDING, ["from_index", "from_time", "to_index", "to_time"]),
    text("ended", "How its memberships ended, and how often: `left 3×`."),
)

ANALYSES = (
    Analysis(
        takes=("member_sessions",),
        answers=(
            "Which processes leave and join again and again? Three returns or more, at most five minutes "
            "apart."
        ),
        columns=FLAPPING_COLUMNS,
        run=flapping_members,
    ),
)
