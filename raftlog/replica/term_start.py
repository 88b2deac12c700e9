"""The first entry of a term: who leads it, and why."""

from __future__ import annotations

from raftlog.storage.directory import NodeDirectory
from records import (
    Cause,
    Record,
    TermStartKey,
    TermStartValue,
    TermWhy,
    Trigger,
    encode_entry,
    encode_record,
)


def term_start(directory: NodeDirectory, term: int, why: TermWhy, previous_leader: int | None) -> bytes:
    """The body of the entry with which the node of `directory` begins `term`."""
    value = TermStartValue(
        term=term,
        node_id=directory.identity.node_id,
        why=why,
        previous_leader=-1 if previous_leader is None else previous_leader,
        incarnation=directory.identity.incarnation,
        boot_id=directory.boot_id,
    )
    return encode_entry(Cause(trigger=Trigger.TERM_OPENED), [encode_record(Record(TermStartKey(), value))])
