"""Which field of a key, a value or a cause each column shows, and the columns made of many at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from history.export.columns import reason_names, trigger_name
from history.words import state_name
from pipeline.schema import RECORD_COLUMNS, arrow_type
from records import Cause, RecordsError, RecordType
from records.kinds import Kind
from records.layouts import Layout
from records.packing import unpack_nested

from .frames import Flags, Ints
from .msgarrays import Field, read_fields
from .plain import partitions
from .slices import Numbers, Referred, distinct, gather, texts


@dataclass(frozen=True, slots=True)
class Shown:
    """The field of a value or a cause that a column shows, and what of it says that there is none."""

    column: str
    field: str
    none: int | str | None = None
    words: Callable[[int], str] | None = None
    """Of a number with a name."""
    load: Callable[[Any], Any] | None = None
    """Of what is nested: from what the layout makes of it to what Arrow takes."""


VALUES: Mapping[int, tuple[Shown, ...]] = {
    RecordType.OFFSET_COMMIT: (
        Shown("offset", "offset"),
        Shown("leader_epoch", "leader_epoch", none=-1),
        Shown("metadata", "metadata", none=""),
    ),
    RecordType.CONSUMER_GROUP_METADATA: (Shown("epoch", "epoch"),),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: (Shown("epoch", "assignment_epoch"),),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: (
        Shown("epoch", "assignment_epoch", none=-1),
        Shown("assigned", "topic_partitions", load=partitions),
    ),
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: (
        Shown("epoch", "member_epoch"),
        Shown("previous_epoch", "previous_member_epoch"),
        Shown("member_state", "state", words=state_name),
        Shown("assigned", "assigned_partitions", load=partitions),
        Shown("pending", "partitions_pending_revocation", load=partitions),
    ),
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: (
        Shown("client_id", "client_id"),
        Shown("client_host", "client_host"),
        Shown("instance_id", "instance_id"),
    ),
}
CAUSES = (
    Shown("trigger", "trigger", words=trigger_name),
    Shown("reasons", "reasons", load=lambda of: reason_names(Cause(trigger=0, reasons=of))),
    Shown("cause_member_id", "member_id", none=""),
    Shown("cause_member_epoch", "member_epoch", none=-1),
    Shown("principal", "principal", none=""),
    Shown("address", "address", none=""),
)
KEYS = (
    Shown("group_id", "group_id"),
    Shown("member_id", "member_id"),
    Shown("topic", "topic", none=""),
    Shown("topic", "name"),
    Shown("partition", "partition"),
)

"""Which of them a key has, its layout says."""

_KINDS = {field.name: field.type for field in arrow_type(RECORD_COLUMNS)}


class Columns:
    """Columns under way: each row is a key, a value or a cause, and is filled by the layout of its type."""

    def __init__(self, rows: int, names: Collection[str]) -> None:
        self._rows = rows
        self._names = names
        self._made: dict[str, Numbers | Referred] = {}

    def fill(
        self,
        layout: Layout,
        shown: Sequence[Shown],
        rows: Ints,
        data: bytes,
        begin: Ints,
        end: Ints,
        lead: int = 0,
    ) -> Flags:
        """Fills some rows from their arrays, which are in the order of ``data``; which of those are odd."""
        fields, odd = read_fields(layout, data, begin, end, lead)
        by_field = {one.field: one for one in shown if one.column in self._names}
        for field, column in zip(fields, layout.columns, strict=True):
            sound = np.flatnonzero(~odd)
            if column.name in by_field:
                self._show(by_field[column.name], field, column.kind.load, data, rows, sound, odd)
            else:
                _check(field, column.kind, data, sound, odd)
        return odd

    def column(self, name: str, of_row: Ints | None = None) -> pa.Array:
        """One of the columns; ``of_row`` says which row here is each row's of the batch."""
        if name not in self._made:
            return pa.nulls(self._rows if of_row is None else len(of_row), _KINDS[name])
        return self._made[name].column(_KINDS[name], of_row)

    def _show(
        self,
        one: Shown,
        field: Field,
        load: Callable[[Any], Any],
        data: bytes,
        rows: Ints,
        sound: Ints,
        odd: Flags,
    ) -> None:
        """One column of the sound ones among ``rows``; what turns out not to be readable gets odd."""
        if field.value is not None and one.words is None:
            assert not isinstance(one.none, str)
            self._numbers(one.column).put(rows[sound], field.value[sound], one.none)
        elif field.value is not None and one.words is not None:
            numbers, places = np.unique(field.value[sound], return_inverse=True)
            words = pa.array([one.words(number) for number in numbers.tolist()], pa.string())
            self._referred(one.column).put(rows[sound], words, places)
        elif field.content is not None and field.is_nil is not None:
            is_shown = field.end[sound] > field.content[sound] if one.none == "" else ~field.is_nil[sound]
            chosen = sound[is_shown]
            found, wrong = texts(gather(data, field.content[chosen], field.end[chosen]))
            if wrong is not None:
                odd[chosen[wrong]] = True
            self._referred(one.column).put(rows[chosen], found)
        else:
            codes, pieces = distinct(data, field.at[sound], field.end[sound])
            loaded = [_loaded(piece, load, one.load) for piece in pieces.to_pylist()]
            is_wrong = np.array([item is _WRONG for item in loaded], np.bool_)
            odd[sound[is_wrong[codes]]] = True
            values = pa.array([None if item is _WRONG else item for item in loaded], _KINDS[one.column])
            self._referred(one.column).put(rows[sound], values, codes)

    def _numbers(self, name: str) -> Numbers:
        made = self._made.setdefault(name, Numbers(self._rows))
        assert isinstance(made, Numbers)
        return made

    def _referred(self, name: str) -> Referred:
        made = self._made.setdefault(name, Referred(self._rows))
        assert isinstance(made, Referred)
        return made


def _check(field: Field, kind: Kind, data: bytes, sound: Ints, odd: Flags) -> None:
    """What no column shows must be readable all the same: an entry is whole, or it is damage."""
    if field.content is not None and kind.name.startswith("string"):
        chosen = sound[field.end[sound] > field.content[sound]]
        _, wrong = texts(gather(data, field.content[chosen], field.end[chosen]))
        if wrong is not None:
            odd[chosen[wrong]] = True
    elif field.content is None and field.value is None:
        codes, pieces = distinct(data, field.at[sound], field.end[sound])
        is_wrong = np.array(
            [_loaded(piece, kind.load, None) is _WRONG for piece in pieces.to_pylist()], np.bool_
        )
        odd[sound[is_wrong[codes]]] = True


_WRONG = object()


def _loaded(piece: bytes, load: Callable[[Any], Any], show: Callable[[Any], Any] | None) -> Any:
    try:
        loaded = load(unpack_nested(piece))
    except RecordsError:
        return _WRONG
    return loaded if show is None else show(loaded)
