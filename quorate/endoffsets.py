"""Begin and end offsets of partitions in a real Kafka cluster, through confluent-kafka if it is installed.

Quorate keeps no records, so only the cluster that does can tell a group's lag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from quorate.errors import CommandError, ExitCode

Partition = tuple[str, int]

PARTITIONS_PER_REQUEST = 10_000
"""At most this many partitions per request, so that an answer stays below a megabyte."""

_NAMELESS = frozenset({3, -190, -188})
"""UNKNOWN_TOPIC_OR_PARTITION, and the client library's own codes for missing topics and partitions."""


class KafkaOffsets:
    """The cluster at `bootstrap`; each query is answered, or fails, within `timeout_s`."""

    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        try:
            from confluent_kafka import KafkaException, TopicPartition, admin
        except ImportError as error:
            raise CommandError(
                "--end-offsets-from needs the package confluent-kafka",
                hint="in Quorate's checkout: pip install -e '.[demo]'",
                code=ExitCode.INSTALLATION,
            ) from error
        self._failures: tuple[type[Exception], ...] = (KafkaException, TimeoutError)
        self._partition: Callable[[str, int], Any] = TopicPartition
        self._spec: Any = vars(admin)["OffsetSpec"]  # its module does not export it explicitly
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._admin: Any = admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def check_is_not(self, cluster_id: str | None) -> None:
        """Raise `CommandError` (usage) if this is the coordinator's own cluster.

        Every partition ends at 0 there, which would be a plausible but wrong answer.
        """
        try:
            own = self._admin.describe_cluster(request_timeout=self._timeout_s).result(self._timeout_s)
        except self._failures as error:
            raise self._away(error) from error
        if own.cluster_id == cluster_id:
            raise CommandError(
                "--end-offsets-from names the coordinator itself, which keeps no records",
                hint="name a broker of the Kafka cluster that holds the topics",
                code=ExitCode.USAGE,
            )

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset of the first record of each partition that the cluster has."""
        return self._ask(partitions, self._spec.earliest())

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset after the last record of each partition that the cluster has."""
        return self._ask(partitions, self._spec.latest())

    def at(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """The offset of the first record at or after a timestamp; the end offset if there is none."""
        wanted = list(partitions)
        found = self._ask(wanted, self._spec.for_timestamp(timestamp_ms))
        without = [partition for partition, offset in found.items() if offset < 0]
        return found | (self.latest(without) if without else {})

    def _ask(self, partitions: Iterable[Partition], spec: Any) -> dict[Partition, int]:
        wanted = sorted(set(partitions))
        found: dict[Partition, int] = {}
        for first in range(0, len(wanted), PARTITIONS_PER_REQUEST):
            part = wanted[first : first + PARTITIONS_PER_REQUEST]
            asked = {self._partition(topic, number): spec for topic, number in part}
            try:
                answers = self._admin.list_offsets(asked, request_timeout=self._timeout_s)
                for partition, answer in answers.items():
                    offset = self._offset(answer)
                    if offset is not None:
                        found[partition.topic, partition.partition] = offset
            except self._failures as error:
                raise self._away(error) from error
        return found

    def _offset(self, answer: Any) -> int | None:
        try:
            return int(answer.result(self._timeout_s).offset)
        except self._failures as error:
            code = getattr(error.args[0], "code", lambda: None)() if error.args else None
            if code in _NAMELESS:
                return None
            raise

    def _away(self, error: Exception) -> CommandError:
        reason: Any = error.args[0] if error.args else None
        words = reason.str() if hasattr(reason, "str") else "no answer in time"
        return CommandError(
            f"cannot ask the Kafka cluster at {self._bootstrap} for its offsets ({words})",
            hint="name a broker of the cluster that holds the topics with --end-offsets-from HOST:PORT",
            code=ExitCode.UNREACHABLE,
        )
