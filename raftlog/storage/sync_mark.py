"""The mark of the last entry known to have been synced here: a loss below it is damage, not a torn tail.

The end of a log alone does not show whether a bad frame was torn by a crash, before it was acknowledged, or
damaged later, after this node had acknowledged it.  This small file beside it does.

    slot 0      at byte 0:      magic b"QSYN", crc u32 (CRC32C of what follows), inode u64, index u64
    zeros       up to byte 4096
    slot 1      at byte 4096:   the same

After a group's sync its last index is written into the slots alternately, and *not* synced: a write that
survives proves that the sync before it had finished; one lost in a power loss (systems write it back within
about 30 s) costs precision only.  So does a kill within `group_commit.MARK_EVERY_MS`.  Invariants:

- A whole slot states the truth, however old it is: so the greatest one counts, and slots that are torn (each
  is in a sector of its own), or a missing file, state nothing, which is never wrong.
- So before a log is made shorter on purpose both slots are lowered, durably (`settle`).
- The file is never removed nor replaced, so that an old one cannot come back.
- It names its own inode, and so counts for nothing in a copy of a directory, perhaps of a running node: the
  copy may hold less of the log than the mark claims.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from raftlog.env.errors import RESTORE_HINT
from raftlog.env.files import Files, join

SYNCED_FILE = "synced"
REPLACE_HINT = (
    "the other nodes have that entry: start this node with an empty directory, `quorate node format "
    "--replace`; without it, acknowledged entries could be lost"
)

_MAGIC = b"QSYN"
_SLOT = struct.Struct("<4sIQQ")
_FIELDS = struct.Struct("<QQ")
_SECTOR_BYTES = 4096
"""Bytes that disks write atomically; the two slots are never in one sector."""
_BYTES_MAX = 1 << 20
"""At most this many bytes are read, far above the file's length; extra bytes are cut at the next write."""


def way_out(*, is_alone: bool) -> str:
    """Advice to an operator about a log that lost entries which were synced."""
    return RESTORE_HINT if is_alone else REPLACE_HINT


def encode_mark(inode: int, index: int) -> bytes:
    """The bytes of a file whose slots both name `index`."""
    return _slot(inode, index).ljust(_SECTOR_BYTES, b"\0") + _slot(inode, index)


def decode_mark(data: bytes, inode: int) -> int:
    """The greatest index in a whole slot that was written into this very file; 0 when there is none."""
    slots = (_read(data, 0), _read(data, _SECTOR_BYTES))
    return max((index for its_inode, index in slots if its_inode == inode), default=0)


def is_whole(data: bytes) -> bool:
    """Whether both slots and the bytes between them are as they were written."""
    first, second = _read(data, 0), _read(data, _SECTOR_BYTES)
    return data == _slot(*first).ljust(_SECTOR_BYTES, b"\0") + _slot(*second)


def _slot(inode: int, index: int) -> bytes:
    return _SLOT.pack(_MAGIC, crc32c(_FIELDS.pack(inode, index)), inode, index)


def _read(data: bytes, at: int) -> tuple[int, int]:
    """(inode, index) of a slot; (0, 0) when it is not whole."""
    if len(data) < at + _SLOT.size:
        return 0, 0
    magic, crc, inode, index = _SLOT.unpack_from(data, at)
    is_good = magic == _MAGIC and crc == crc32c(_FIELDS.pack(inode, index))
    return (inode, index) if is_good else (0, 0)


def read_mark(files: Files, home: str) -> int:
    """The last entry that the log in `home` is known to have synced; 0: nothing is known."""
    path = join(home, SYNCED_FILE)
    return decode_mark(files.read(path, _BYTES_MAX), files.inode(path)) if files.exists(path) else 0


class Synced:
    """The mark of the log in `home`, open for writing; created if it does not exist."""

    def __init__(self, files: Files, home: str) -> None:
        path = join(home, SYNCED_FILE)
        self._file = files.open(path, "w")
        self._inode = files.inode(path)
        self._at = 0
        self.index = 0
        """The index last written."""

    def note(self, index: int) -> None:
        """Note that everything up to `index` has been synced; on the loop or the disk thread."""
        self._file.pwrite(_slot(self._inode, index), self._at)
        self._at ^= _SECTOR_BYTES
        self.index = index

    def fill(self, index: int) -> None:
        """Like `note`, but write the whole file, which may be new or torn."""
        data = encode_mark(self._inode, index)
        if self._file.size() > len(data):
            self._file.truncate(len(data))
        self._file.pwrite(data, 0)
        self.index = index

    def settle(self, index: int) -> None:
        """Set the mark to exactly `index`, durably: the log will be made shorter, or stops cleanly."""
        self.fill(index)
        self._file.fdatasync()

    def close(self) -> None:
        """Close the file; nothing is synced here."""
        self._file.close()
