"""Files that say how far a log has been shipped: one beside the log, one in the place it was shipped to.

Beside the log, `shipped` in a shard's folder says up to which entry its segments are in the store of
`log.archive.url`. In the place, `shipped` in the node's folder says that this is such a place, and not a
node's directory, and what was shipped of the files that change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from raftlog.env.errors import Corrupt
from raftlog.env.files import Files, join
from raftlog.storage.metafile import decode_meta, encode_meta, read_meta, write_meta

MARK: Final = "shipped"
_KIND: Final = "shipped"


def shipped_to(files: Files, home: str) -> int:
    """The last entry of the log in `home` that the store has; 0: none is known to be there.

    The store itself knows better: a mark that is missing or damaged is written anew by the next shipment.
    """
    path = join(home, MARK)
    if not files.exists(path):
        return 0
    try:
        return int(read_meta(files, path, _KIND)[0])
    except Corrupt:
        return 0


def mark_shipped(files: Files, home: str, last_index: int) -> None:
    """Durably note the last entry that the store has."""
    if shipped_to(files, home) != last_index:
        write_meta(files, join(home, MARK), _KIND, last_index)


PLACE_FILE: Final = "shipped"
_PLACE_KIND: Final = "place"


@dataclass(frozen=True, slots=True)
class PlaceMark:
    """The state of a node's changing files in a place."""

    decided: Mapping[int, int] = field(default_factory=dict)
    """Shard -> the last entry of its live segment there; all entries up to it are committed."""
    snapshots: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Shard -> the last indexes of its snapshots there, ascending."""
    evidence: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Name of a file of evidence -> its size and CRC32C."""

    def encoded(self) -> bytes:
        return encode_meta(
            _PLACE_KIND, *(sorted(one.items()) for one in (self.decided, self.snapshots, self.evidence))
        )


def decode_place(data: bytes, path: str) -> PlaceMark:
    """A mark from its bytes; raises Corrupt."""
    decided, snapshots, evidence = decode_meta(data, path, _PLACE_KIND)[:3]
    return PlaceMark(
        decided=dict(decided),
        snapshots={shard: tuple(indexes) for shard, indexes in snapshots},
        evidence={name: tuple(state) for name, state in evidence},
    )


def place_mark(files: Files, path: str) -> PlaceMark | None:
    """The mark of the place at `path`; None if it is no such place.  Raises Corrupt."""
    file = join(path, PLACE_FILE)
    return decode_place(files.read(file), file) if files.exists(file) else None
