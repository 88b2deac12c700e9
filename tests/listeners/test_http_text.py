"""JSON encoded in pieces equals that of `json.dumps`."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster.http.text import PIECE_CHARS, json_text
from cluster.runtime.slices import finished

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(VALUES)
def test_the_same_text(value: Any) -> None:
    assert finished(json_text(value)) == json.dumps(value)


def test_a_long_answer_stops() -> None:
    members = [{"member_id": f"member-{number}", "topics": ["orders"] * 20} for number in range(2_000)]
    answer = {"shard": 1, "group": {"members": members, "topics": {}}, "at_ms": 5}
    text = json.dumps(answer)
    assert sum(1 for _ in json_text(answer)) > len(text) // (2 * PIECE_CHARS)
    assert finished(json_text(answer)) == text
