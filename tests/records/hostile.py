"""Bytes that no encoder of ours wrote, and the memory that reading them takes."""

import tracemalloc
from collections.abc import Callable

HOSTILE = {
    "a length of four billion": b"\xdd\xff\xff\xff\xff",
    "text of four billion bytes": b"\x96\xdb\xff\xff\xff\xff",
    "lengths that nest": b"\xdd\x00\x01\xff\xff" * 20_000,
    "short lengths that nest": b"\xdc\x7f\xff" * 30_000,
    "arrays in arrays, all there": b"\x91" * 1_020 + b"\x01",
    "arrays in arrays, too deep": b"\x91" * 100_000 + b"\x01",
    "more items than any layout": b"\xdc\x7f\xff" + b"\x00" * 0x7FFF,
    "an empty map": b"\x91\x80",
    "a map": b"\x81\x01\x02",
    "a map of four billion": b"\xdf\xff\xff\xff\xff",
    "maps that nest": b"\x81\x01" * 30_000 + b"\x01",
    "an extension": b"\x91\xd4\x05\x00",
    "a timestamp": b"\x91\xd6\xff\x00\x00\x00\x00",
    "text that is no UTF-8": b"\x96\xa2\xff\xfe\x01\x01\x01\x01\x01",
    "a byte that msgpack does not have": b"\xc1",
    "not an array": b"\x2a",
    "no item": b"\x90",
}


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that `work` held at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
