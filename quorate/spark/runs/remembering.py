"""Remembers the input's segments and ends beside the tables, so that the next run looks at what is new only.

The file is advice: the source notices a segment that is not as remembered, and a file that is missing or
cannot be read costs a fresh look. It is therefore outside the commits.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgpack

from quorate.spark.errors import OutputError
from quorate.spark.tables.store import Store

if TYPE_CHECKING:
    from quorate.spark.source.inputs import InputLog

REMEMBERED = "_quorate/segments"


def remembered(store: Store) -> bytes:
    """The last run's notes; empty if there are none."""
    with contextlib.suppress(OutputError, OSError):
        return store.read(REMEMBERED)
    return b""


def remember(store: Store, log: InputLog) -> None:
    """Note the segments for the next run."""
    noted = bytes(msgpack.packb(log.to_remember()))
    if noted != remembered(store):
        with contextlib.suppress(OutputError, OSError):
            store.write(REMEMBERED, noted)
