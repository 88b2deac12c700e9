"""Formatting shared by all output: times, durations, partition ranges.

All text printed by history is formatted here, so that a moment looks the same everywhere. A log keeps
wall-clock milliseconds; readers want their own time zone and need to know which one it was, so a full time
always ends with its offset from UTC. Nothing here reads a clock: the same log renders to the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

MS_PER_SECOND = 1000
CALENDAR_MS_MAX = 253_370_764_800_000
"""Epoch milliseconds of the year 9999 in any zone.

Clients may set later times, for offsets to be kept for ever."""
NAME_LENGTH_MAX = 12
"""A member id longer than this is shown by a compact name. Kafka's ids are UUIDs of 22 or 36 characters."""


@dataclass(frozen=True, slots=True)
class TimeStyle:
    """The time zone in which times are written; ``None`` is the zone of the reader's machine."""

    zone: tzinfo | None = None

    def moment(self, wall_ms: int) -> datetime:
        return datetime.fromtimestamp(wall_ms / MS_PER_SECOND, tz=UTC).astimezone(self.zone)

    def epoch_ms(self, shown: datetime) -> int:
        """Epoch milliseconds of a local time in this zone; ``fold`` as in `datetime`."""
        moment = shown.astimezone() if self.zone is None else shown.replace(tzinfo=self.zone)
        return round(moment.timestamp() * MS_PER_SECOND)

    def full(self, wall_ms: int) -> str:
        """``2026-03-01 12:03:08.100+01:00``, or ``unknown time`` for -1, where the log has none."""
        if wall_ms < 0:
            return "unknown time"
        if wall_ms > CALENDAR_MS_MAX:
            return f"{wall_ms} ms"
        return self.moment(wall_ms).isoformat(sep=" ", timespec="milliseconds")

    def clock(self, wall_ms: int) -> str:
        """``12:03:08.100``, for use next to a moment written in full."""
        if wall_ms < 0:
            return "unknown time"
        if wall_ms > CALENDAR_MS_MAX:
            return f"{wall_ms} ms"
        return self.moment(wall_ms).strftime("%H:%M:%S.") + f"{wall_ms % MS_PER_SECOND:03d}"


LOCAL = TimeStyle()
UTC_STYLE = TimeStyle(UTC)


def parse_time(text: str, style: TimeStyle = LOCAL) -> int:
    """Parse a time typed by a person into epoch milliseconds.

    Accepts epoch milliseconds (``1767225600000``) or ISO 8601 (``2026-03-01T12:03:08.1+01:00``). A time
    without an offset is in the reader's zone. Raises `ValueError` naming the accepted forms.
    """
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time: give epoch milliseconds, or 2026-03-01T12:03:08 with or without an"
            " offset such as +01:00 or Z"
        ) from None
    return style.epoch_ms(moment) if moment.tzinfo is None else round(moment.timestamp() * MS_PER_SECOND)


def duration(span_ms: float) -> str:
    """Format milliseconds as ``0 ms``, ``120 ms``, ``3.0 s``, ``2 min 5 s``, ``1 h 3 min`` or ``2 d 4 h``."""
    if span_ms < 0:
        return "-" + duration(-span_ms)
    if span_ms < MS_PER_SECOND:
        return f"{round(span_ms)} ms"
    seconds = span_ms / MS_PER_SECOND
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, below, size, small in (("min", "s", 60, 3600), ("h", "min", 3600, 86400)):
        if whole < small:
            rest = whole % size // (size // 60)
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    rest = whole % 86400 // 3600
    return f"{whole // 86400} d" + (f" {rest} h" if rest else "")


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers as ranges: ``0-3,7`` for 0, 1, 2, 3, 7; ``-`` for none."""
    parts: list[str] = []
    first = last = None
    for number in sorted(set(numbers)):
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None:
            parts.append(_range(first, last))
        first = last = number
    if first is None:
        return "-"
    parts.append(_range(first, last))
    return ",".join(parts)


def _range(first: int, last: int | None) -> str:
    return str(first) if last is None or first == last else f"{first}-{last}"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: ``1 partition``, ``12 partitions``, ``2 entries``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def lower_words(name: str) -> str:
    """The name of an enumeration's member in words: ``member joined`` for ``MEMBER_JOINED``."""
    return name.lower().replace("_", " ")


def sentence_list(parts: Sequence[str]) -> str:
    """Join parts into ``a``, ``a and b`` or ``a, b and c``."""
    if len(parts) < 2:
        return "".join(parts)
    return ", ".join(parts[:-1]) + " and " + parts[-1]


class MemberNames:
    """The names of a group's members, and of others that an answer mentions.

    A member has the name given here. Others, for instance one that was refused before it joined, are called
    by their id if it is short, and otherwise ``x1``, ``x2`` and so on, in order of first appearance.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = dict(names or {})
        self._taken = set(self._names.values())
        self._count = 0

    def name(self, member_id: str) -> str:
        known = self._names.get(member_id)
        if known is None:
            known = self._names[member_id] = self._new(member_id)
            self._taken.add(known)
        return known

    def _new(self, member_id: str) -> str:
        if member_id and len(member_id) <= NAME_LENGTH_MAX and member_id not in self._taken:
            return member_id
        while True:
            self._count += 1
            name = f"x{self._count}"
            if name not in self._taken:
                return name

    def in_order(self, member_ids: Iterable[str]) -> list[str]:
        """Each member once: in the order of the names given here, and others as they come."""
        place = {member_id: number for number, member_id in enumerate(self._names)}
        return sorted(dict.fromkeys(member_ids), key=lambda one: place.get(one, len(place)))

    def legend(self) -> dict[str, str]:
        """Compact name -> member id, for names that differ from the id."""
        return {name: member_id for member_id, name in self._names.items() if name != member_id}
