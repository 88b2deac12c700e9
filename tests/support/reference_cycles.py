"""Reference cycles that a piece of work leaves behind."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable

OF_THE_SIMULATION = (
    "cluster.kafka.connection.Connection",
    "cluster.kafka.reply_queue.ReplyQueue",
    "cluster.kafka.steady.FastReplies",
    "cluster.kafka.unserved.UnservedFrames",
    "wire.framing.Framer",
    "raftlog.env.simulated_files.SimFiles",
)
"""Simulated connections, whose two ends refer to each other; real transports release theirs when closed."""
OURS = ("cluster.kafka", "cluster.http", "cluster.runtime", "coordinator", "raftlog", "wire", "records")


def cycles_of(serve: Callable[[], None]) -> Counter[str]:
    """Objects of ours that only the collector would free."""
    serve()  # what is made once stays
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        serve()
        gc.collect()
        kinds = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    return Counter(
        {
            kind: number
            for kind, number in kinds.items()
            if kind.startswith(OURS) and kind not in OF_THE_SIMULATION
        }
    )
