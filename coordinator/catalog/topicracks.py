"""The only config of a topic: `quorate.partition.racks`, the racks of the replicas of its partitions.

Topics hold no data here, so only a mirror of a Kafka cluster knows these racks. Assignors that ask for racks
get them through record 4. The text is JSON: one array per partition with the racks of its replicas, `[]` if
they are not known.
"""

from __future__ import annotations

import json
from typing import Final

from coordinator.api import RequestRefused
from coordinator.limits import Limits
from coordinator.topics import CatalogTopic
from records import PartitionRacks
from wire.errors import ErrorCode

NAME: Final = "quorate.partition.racks"

DOCUMENTATION: Final = (
    'Racks of the replicas of each partition, such as [["a","b"],["b"]], for assignors that use them.'
)


def text_of(racks: tuple[PartitionRacks, ...]) -> str:
    """The config's value; "" if no racks are known."""
    if not racks:
        return ""
    by_partition: list[tuple[str, ...]] = [()] * (1 + racks[-1].partition)
    for known in racks:
        by_partition[known.partition] = known.racks
    return json.dumps(by_partition, separators=(",", ":"), ensure_ascii=False)


def racks_of(text: str, topic: CatalogTopic, limits: Limits) -> tuple[PartitionRacks, ...]:
    """Parse the config's value into racks, sorted and without duplicates.

    Raises `RequestRefused` (INVALID_CONFIG)."""
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError) as error:
        raise _invalid(f"is not valid JSON: {error}") from None
    if not isinstance(found, list) or len(found) > topic.num_partitions:
        raise _invalid(f"must be an array with at most {topic.num_partitions} items, one per partition")
    racks = []
    for partition, names in enumerate(found):
        if not isinstance(names, list) or len(names) > limits.racks_per_partition_max:
            raise _invalid(
                f"must have an array of at most {limits.racks_per_partition_max} racks for partition "
                f"{partition}"
            )
        if not all(_is_name(name, limits) for name in names):
            raise _invalid(
                f"has an invalid rack for partition {partition}: a rack is a string of 1 to "
                f"{limits.rack_id_bytes_max} bytes"
            )
        if names:
            racks.append(PartitionRacks(partition=partition, racks=tuple(sorted(set(names)))))
    return tuple(racks)


def _is_name(name: object, limits: Limits) -> bool:
    try:
        return isinstance(name, str) and 0 < len(name.encode()) <= limits.rack_id_bytes_max
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _invalid(what: str) -> RequestRefused:
    return RequestRefused(ErrorCode.INVALID_CONFIG, f"{NAME} {what}.")
