"""The reach of fetched records, from the headers of their batches alone."""

from __future__ import annotations

from typing import Final

from client.core.types import Position
from wire.record_batch import HEADER_BYTES, LENGTH_END, MAGIC, header_of

OFFSET_MAX: Final = 2**63 - 1
"""The largest offset that requests can carry. No record has it: the one after it could not be asked for."""


def fetched_to(records: bytes, position: Position) -> tuple[int, int]:
    """Return the offset after the last whole batch, and that batch's leader epoch.

    Without such a batch, they are those of `position`; the application side, which decodes the records, says
    why.
    """
    at, size = 0, len(records)
    offset, leader_epoch = position.offset, position.leader_epoch
    while size - at >= HEADER_BYTES:
        header = header_of(records, at)
        at += LENGTH_END + header.length
        is_whole = header.length >= HEADER_BYTES - LENGTH_END and at <= size
        is_offset = offset <= header.last_offset < OFFSET_MAX
        if not is_whole or header.magic != MAGIC or not is_offset:
            break
        offset, leader_epoch = header.last_offset + 1, header.partition_leader_epoch
    return offset, leader_epoch
