"""A process of clients of several groups, which commit as fast as they are acknowledged.

    python -P committers.py BOOTSTRAP TOPIC DIRECTORY '{"group-0": {"17": 250}, ...}'

Each group counts up from the offsets that it is given and writes every acknowledgement to a file of its own,
as one line `MILLISECONDS {"17": 251}`, flushed at once. The process never ends by itself; it is killed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition


def commit_for_ever(bootstrap: str, topic: str, group: str, offsets: dict[str, int], file: Path) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    )
    with file.open("w", encoding="utf-8") as out:
        while True:
            offsets = {partition: offset + 1 for partition, offset in offsets.items()}
            parts = [TopicPartition(topic, int(partition), offset) for partition, offset in offsets.items()]
            try:
                consumer.commit(offsets=parts, asynchronous=False)
            except KafkaException:
                continue
            out.write(f"{round(time.time() * 1000)} {json.dumps(offsets)}\n")
            out.flush()


def acknowledged(file: Path) -> list[tuple[int, dict[int, int]]]:
    """Return a group's acknowledgements as (milliseconds, offset by partition). A killed client may have left
    half a line, which is skipped."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    found = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        at_ms, _, offsets = line.partition(" ")
        found.append((int(at_ms), {int(key): offset for key, offset in json.loads(offsets).items()}))
    return found


def main() -> None:
    bootstrap, topic, directory, groups = sys.argv[1:]
    threads = [
        threading.Thread(
            target=commit_for_ever, args=(bootstrap, topic, group, offsets, Path(directory) / group)
        )
        for group, offsets in json.loads(groups).items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
