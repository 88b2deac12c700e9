"""Decompression of record batches, within a bound.

The four codecs come from one library, cramjam, which is loaded when the first compressed batch arrives. Only
snappy says how large its data will be, so the others are given a buffer that grows.
"""

from __future__ import annotations

from struct import Struct
from types import ModuleType
from typing import Final

from wire.record_batch import GZIP, LZ4, SNAPPY, ZSTD

DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Limit on one batch when decompressed. Producers bound their batches before they compress them
(max.request.size: 1 MiB; librdkafka's limit is 1 GB, and its default 1 MB)."""

BUFFER_BYTES: Final = 1024 * 1024
"""The buffer that a consumer keeps; most batches fit into it. A new one would have to be cleared for each."""
GROWTH: Final = 4
"""Each further buffer for a batch is so much larger."""

_NAMES: Final = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

_BUFFER_FULL: Final = "failed to write whole buffer"
"""cramjam's words for an output buffer that is too small."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
"""The beginning of Java producers' data: two versions follow, and blocks of snappy after their lengths."""
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK_LENGTH: Final = Struct(">i")


class NotDecompressed(Exception):
    """The records of a batch cannot be decompressed; says why."""


class Decompressor:
    """Decompresses the batches of one consumer."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def decompress(self, codec: int, data: memoryview) -> bytes:
        """Return the decompressed records of a batch.

        Raises NotDecompressed if the codec is unknown, the bytes are damaged, or the result would exceed
        DECOMPRESSED_BYTES_MAX.
        """
        name = _NAMES.get(codec)
        if name is None:
            raise NotDecompressed(f"codec {codec} is unknown")
        import cramjam

        try:
            if codec == SNAPPY:
                return _snappy(data, cramjam.snappy)
            return self._growing(name, data, getattr(cramjam, name))
        except cramjam.DecompressionError as error:
            raise NotDecompressed(f"its {name} data is damaged: {error}") from None

    def _growing(self, name: str, data: memoryview, library: ModuleType) -> bytes:
        """Decompress into the buffer that is kept, and into larger ones while one is too small."""
        self._buffer = buffer = self._buffer or bytearray(BUFFER_BYTES)
        while True:
            try:
                written = library.decompress_into(data, buffer)
            except Exception as error:
                if str(error) != _BUFFER_FULL:
                    raise
            else:
                return bytes(memoryview(buffer)[:written])
            if len(buffer) >= DECOMPRESSED_BYTES_MAX:
                raise _too_large(name)
            buffer = bytearray(min(len(buffer) * GROWTH, DECOMPRESSED_BYTES_MAX))


def _too_large(name: str) -> NotDecompressed:
    return NotDecompressed(
        f"its {name} data has more than {DECOMPRESSED_BYTES_MAX:,} bytes when decompressed"
    )


def _snappy(data: memoryview, library: ModuleType) -> bytes:
    """Decompress raw snappy, or the blocks of Java's framing."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, 0, library)
    blocks: list[bytes] = []
    at, total = _XERIAL_HEADER_BYTES, 0
    while at < len(data):
        if at + _BLOCK_LENGTH.size > len(data):
            raise NotDecompressed("its snappy data ends within the length of a block")
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - at:
            raise NotDecompressed(f"its snappy data has a block of {length} bytes, {len(data) - at} remain")
        blocks.append(_snappy_block(data[at : at + length], total, library))
        total += len(blocks[-1])
        at += length
    return b"".join(blocks)


def _snappy_block(data: memoryview, before: int, library: ModuleType) -> bytes:
    """Decompress a block of raw snappy, which begins with its length; `before` bytes precede it."""
    if before + library.decompress_raw_len(data) > DECOMPRESSED_BYTES_MAX:
        raise _too_large("snappy")
    return bytes(library.decompress_raw(data))
