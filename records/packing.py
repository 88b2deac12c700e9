"""msgpack without trust: bytes to plain lists and back, bounded by the bytes that are there.

A five-byte msgpack header may claim an array of four billion items, and a thousand of them may nest; a
decoder that believes the claim allocates before it finds out.  So no claim is trusted.  Flat arrays (the hot
ones) are unpacked under a small limit on every array.  So are short nested ones, where no array can claim
more items than there are bytes; longer ones are first walked without building anything, which proves that
each claimed item is present.  What is built afterwards is at most a small multiple of the bytes read.  Maps
and extension types do not occur on disk and are refused.
"""

from typing import Any

import msgpack

from records.errors import MalformedRecord

FLAT_ARRAY_ITEMS_MAX = 32  # twice the widest flat layout of today; bounds what hostile nesting can claim

UNWALKED_BYTES_MAX = 1024
"""At most this many bytes are unpacked without a walk first.

They can claim as many items in each of a third as many arrays: below 3 MB, and only until the missing end is
found.
"""

# One packer for all: creating one costs more than packing.  It resets itself after every call, failed or not.
_pack = msgpack.Packer().pack
_unpack = msgpack.unpackb
_UNREADABLE = (ValueError, msgpack.exceptions.UnpackException, RecursionError)


def pack(items: list[Any] | tuple[Any, ...]) -> bytes:
    """A positional array as msgpack; raises `MalformedRecord` for lone surrogates in a text."""
    try:
        packed: bytes = _pack(items)
    except UnicodeEncodeError as error:
        raise MalformedRecord(f"text that UTF-8 cannot encode: {error}") from None
    return packed


def unpack_flat(data: bytes) -> Any:
    """The items of an array that holds no arrays; raises `MalformedRecord`."""
    try:
        return _unpack(data, max_array_len=FLAT_ARRAY_ITEMS_MAX, max_map_len=0, max_ext_len=0)
    except _UNREADABLE as error:
        raise _malformed(error) from None


def unpack_nested(data: bytes) -> Any:
    """The items of any array, after a check that they are all there; raises `MalformedRecord`."""
    size = len(data)
    if not size:
        raise MalformedRecord("empty; expected a msgpack array")
    try:
        if size <= UNWALKED_BYTES_MAX:
            return _unpack(data, max_array_len=size, max_map_len=0, max_ext_len=0)
        walker = msgpack.Unpacker(None, read_size=size, max_buffer_size=size)
        walker.feed(data)
        walker.skip()
        if walker.tell() != size:
            raise MalformedRecord(f"{size - walker.tell()} bytes follow the end of the array")
        return _unpack(data, max_map_len=0, max_ext_len=0)
    except _UNREADABLE as error:
        raise _malformed(error) from None


def _malformed(error: BaseException) -> MalformedRecord:
    if isinstance(error, MalformedRecord):
        return error
    return MalformedRecord(f"not a msgpack array of plain items: {type(error).__name__} {error}".rstrip())
