"""Serialisation of the state of a `FactsBuilder`, and of the rows of a group.

A walk may be interrupted anywhere: the restored builder goes on as the original would have. Readers of a
growing log use this to avoid starting over each time.

Invariant: what is written are the fields of these classes, so any change to one of them must raise `VERSION`.
Bytes of another version are refused, and the log is walked from its beginning instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from history.reading.catalog import TopicChange, TopicNames
from history.state.group_view import GroupView, MemberView, Partition, Partitions
from records import Cause, Expiry, GroupMetadataValue, RecordsError
from records.packing import pack, unpack_nested

from . import epochs, ownership, rows, sessions
from .change import EntryPosition, Follower
from .group import FactsBuilder
from .positional_codec import PositionalCodec, StateError
from .rows import GroupRows
from .waits import OpenWait, Waits

__all__ = ["VERSION", "StateError", "dump_builder", "dump_facts", "load_builder", "load_facts"]

VERSION = 1
T = TypeVar("T")

_CLASSES = (
    FactsBuilder,
    GroupRows,
    *(EntryPosition, Follower, GroupView, MemberView, TopicChange, OpenWait, Waits),
    *(ownership.Ownership, ownership._Span, sessions.Sessions, sessions._Session),
    *(epochs.Epochs, epochs._Epoch, epochs._Step),
    *(rows.EpochRow, rows.Moved, rows.MemberProgress, rows.Wait, rows.Relapse, rows.OwnershipSpan),
    *(rows.MemberSession, rows.Away, rows.TermRow, rows.TopicPartition),
    *(Cause, Expiry, GroupMetadataValue),
)
_SHARED = {
    str: True,
    Partition: True,
    rows.TopicPartition: True,
    tuple[str, ...]: False,
    Partitions: False,
    Cause: False,
    MemberView: False,
    OpenWait: False,
    epochs._Epoch: False,
    sessions._Session: False,
}
"""The types with a table (see `PositionalCodec`). Some must be one object again: a wait belongs to its epoch
and goes on in `Waits`; an epoch is both the current one and one of the list. The others are the bulk of a
state."""
_LEFT_OUT = {FactsBuilder: {"_names": None}, GroupRows: {"basis": None}}
_CODEC = PositionalCodec(_CLASSES, _SHARED, _LEFT_OUT)


def dump_builder(builder: FactsBuilder) -> bytes:
    """Serialise all of the builder but its topic names."""
    return _dump(builder)


def load_builder(data: bytes, names: TopicNames) -> FactsBuilder:
    """Restore a builder; raises `StateError`."""
    builder: FactsBuilder = _load(FactsBuilder, data)
    builder._names = names
    return builder


def dump_facts(facts: GroupRows) -> bytes:
    """Serialise rows, without their basis."""
    return _dump(facts)


def load_facts(data: bytes) -> GroupRows:
    """Restore rows, without their basis; raises `StateError`."""
    return _load(GroupRows, data)


def described() -> list[str]:
    """Describe the layout in words that differ whenever the bytes would."""
    return _CODEC.described()


def _dump(value: object) -> bytes:
    return pack([VERSION, _CLASSES.index(type(value)), *_CODEC.dump(value)])


def _load(cls: Callable[..., T], data: bytes) -> T:
    try:
        found: Any = unpack_nested(data)
    except RecordsError as error:
        raise StateError(str(error)) from None
    if type(found) is not list or len(found) != 4:
        raise StateError("not a state")
    version, number, tables, root = found
    if version != VERSION or type(version) is not int:
        raise StateError(f"a state of version {version!r}, this release writes {VERSION}")
    if type(number) is not int or not 0 <= number < len(_CLASSES) or _CLASSES[number] is not cls:
        raise StateError(f"class {number!r}, expected {_CLASSES.index(cls)}")
    made: T = _CODEC.load(_CLASSES[number], [tables, root])
    return made
