"""The rule of flapping members on rows of the table; `test_analyses_life` compares it with plain sessions."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")

from quorate.spark.analyses.members import flapping_of  # noqa: E402
from quorate.spark.schema import TABLES  # noqa: E402

SESSIONS = TABLES["member_sessions"]


def stay(number: int, end: str | None) -> dict[str, Any]:
    """Return one of several sessions of the same member, each a minute long, a second apart."""
    begin_ms = number * 61_000
    place = {"cluster_id": "c", "shard": 0, "group_id": "g", "member_id": "ann", "client_id": "app"}
    when = {"from_index": number * 10 + 1, "from_ms": begin_ms, "to_index": number * 10 + 9}
    told = {"client_host": "/10.0.0.7", "to_ms": begin_ms + 60_000, "end": end}
    return {**dict.fromkeys(SESSIONS.names), **place, **when, **told}


def test_an_end_that_this_release_has_no_word_for_is_unknown() -> None:
    """A newer release wrote the end, or an older one left it out: the member returned all the same."""
    ends = ["left", "moved to another planet", "left", None, "left"]
    rows = [stay(number, end) for number, end in enumerate(ends)]
    table = pa.Table.from_pylist(rows)
    (found,) = [row for batch in flapping_of(table.to_batches()) for row in batch.to_pylist()]
    assert (found["returns"], found["ended"]) == (4, "left 2×, unknown 2×")
