"""Small files that hold one value: identity, boot ids, term and vote, archive manifest, clean-stop marker.

    magic   4 bytes  b"QMF1"
    crc     u32      CRC32C of everything after this field
    length  u32      bytes of the value
    value            msgpack: [kind, field, field, ...]; fields are only ever appended

Always replaced as a whole (`files.replace`), so a torn one cannot exist: anything unexpected is damage. Every
byte is covered: a flip anywhere in the file is found.
"""

from __future__ import annotations

import struct
from typing import Any

import msgpack
from crc32c import crc32c

from raftlog.env.errors import RESTORE_HINT, Corrupt
from raftlog.env.files import Files, replace

MAGIC = b"QMF1"
META_BYTES_MAX = 64 << 20
"""At most this many bytes: a manifest of half a million segments; the other files have a kilobyte or two."""
_HEAD = struct.Struct("<4sII")
_CRC_START = 8


def encode_meta(kind: str, *fields: object) -> bytes:
    """The bytes of a file of `kind`."""
    value: bytes = msgpack.packb([kind, *fields])
    rest = struct.pack("<I", len(value)) + value
    return MAGIC + struct.pack("<I", crc32c(rest)) + rest


def decode_meta(data: bytes, path: str, kind: str) -> list[Any]:
    """The fields of a file of `kind`; raises Corrupt."""
    if len(data) < _HEAD.size:
        raise Corrupt(path, len(data), f"{len(data)} bytes are too few for a {kind} file", RESTORE_HINT)
    magic, crc, length = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise Corrupt(path, 0, f"begins with {magic!r} instead of {MAGIC!r}", RESTORE_HINT)
    if length != len(data) - _HEAD.size:
        what = f"{len(data) - _HEAD.size} bytes follow the header, which announces {length}"
        raise Corrupt(path, 8, what, RESTORE_HINT)
    if crc32c(data[_CRC_START:]) != crc:
        raise Corrupt(path, 4, f"the CRC of this {kind} file does not match", RESTORE_HINT)
    value: list[Any] = msgpack.unpackb(data[_HEAD.size :])
    if value[0] != kind:
        raise Corrupt(path, _HEAD.size, f"is a {value[0]!r} file, expected {kind!r}", RESTORE_HINT)
    return value[1:]


def read_meta(files: Files, path: str, kind: str) -> list[Any]:
    """Read and check a file; a missing one is Corrupt too, because formatting wrote it."""
    try:
        data = files.read(path, META_BYTES_MAX)
    except FileNotFoundError:
        raise Corrupt(path, 0, f"the {kind} file is missing", RESTORE_HINT) from None
    return decode_meta(data, path, kind)


def write_meta(files: Files, path: str, kind: str, *fields: object) -> None:
    """Durably replace a file."""
    replace(files, path, encode_meta(kind, *fields))
