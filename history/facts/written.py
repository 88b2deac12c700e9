"""The state of a `FactsBuilder`, and the rows of a group, written down and taken up again.

A walk may be cut anywhere: the builder that is taken up goes on as the one that was written would have. For
those who read a growing log again and again, and may not begin anew each time. What must stay true: what is
written are the fields of these classes, so whoever changes one of them raises `VERSION`; bytes of another
version are refused, and the log is walked from its beginning instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from history.reading.catalog import TopicChange, TopicNames
from history.state.track import GroupTrack, MemberTrack, Partition, Partitions
from records import Cause, Expiry, GroupMetadataValue, RecordsError
from records.packing import pack, unpack_nested

from . import epochs, ownership, rows, sessions
from .change import Follower, Place
from .group import FactsBuilder
from .rows import GroupFacts
from .shapes import Shapes, StateError
from .waits import OpenWait, Waits

__all__ = ["VERSION", "StateError", "dump_builder", "dump_facts", "load_builder", "load_facts"]

VERSION = 1
T = TypeVar("T")

_CLASSES = (
    FactsBuilder,
    GroupFacts,
    *(Place, Follower, GroupTrack, MemberTrack, TopicChange, OpenWait, Waits),
    *(ownership.Ownership, ownership._Span, sessions.Sessions, sessions._Session),
    *(epochs.Epochs, epochs._Epoch, epochs._Step),
    *(rows.EpochRow, rows.Moved, rows.Progress, rows.Wait, rows.Relapse, rows.OwnershipSpan),
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
    MemberTrack: False,
    OpenWait: False,
    epochs._Epoch: False,
    sessions._Session: False,
}
"""A wait is its epoch's and goes on in `Waits`, an epoch is in force and one of all: they must be one object
again. The others are as large as a state gets."""
_LEFT_OUT = {FactsBuilder: {"_names": None}, GroupFacts: {"basis": None}}
_SHAPES = Shapes(_CLASSES, _SHARED, _LEFT_OUT)


def dump_builder(builder: FactsBuilder) -> bytes:
    """All that the builder knows, but for what topics are called."""
    return _dump(builder)


def load_builder(data: bytes, names: TopicNames) -> FactsBuilder:
    """The builder as it was; raises `StateError`."""
    builder: FactsBuilder = _load(FactsBuilder, data)
    builder._names = names
    return builder


def dump_facts(facts: GroupFacts) -> bytes:
    """Rows, but for their basis."""
    return _dump(facts)


def load_facts(data: bytes) -> GroupFacts:
    """The rows as they were, without their basis; raises `StateError`."""
    return _load(GroupFacts, data)


def described() -> list[str]:
    """What is written, in words that differ wherever the bytes would."""
    return _SHAPES.described()


def _dump(value: object) -> bytes:
    return pack([VERSION, _CLASSES.index(type(value)), *_SHAPES.dump(value)])


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
    made: T = _SHAPES.load(_CLASSES[number], [tables, root])
    return made
