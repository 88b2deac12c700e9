"""Begin and end offsets of partitions in the cluster that keeps their records.

That is a real Kafka cluster, or the coordinator's own if it has a scratch log. After a failover of that log,
offsets go on far beyond those of before, whose records are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from quorate.client import Client
from quorate.errors import CommandError, ExitCode
from wire.apis import ApiKey

Partition = tuple[str, int]

EARLIEST, LATEST = -2, -1
"""Kafka's timestamps for the first record of a partition and for its end."""


class KafkaOffsets:
    """The cluster at `bootstrap`; each query is answered, or fails, within `timeout_s`."""

    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        self._client = Client(bootstrap, timeout_s=timeout_s)
        self._is_own = False

    def check_has_records(self, cluster_id: str | None) -> None:
        """Raise `CommandError` (usage) if this is the coordinator's own cluster, and keeps no records.

        Every partition ends at 0 there, which would be a plausible but wrong answer.
        """
        with self._asked():
            self._is_own = self._client.cluster_id() == cluster_id
        if self._is_own and not self._client.serves(ApiKey.DELETE_RECORDS):
            raise CommandError(
                "--end-offsets-from is the coordinator itself, which keeps no records",
                hint="give a broker of the Kafka cluster that holds the topics",
                code=ExitCode.USAGE,
            )

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset of the first record of each partition that the cluster has."""
        return self._ask(partitions, EARLIEST)

    def lost_before(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offsets before which a failover has lost all records, and no group lags behind."""
        return self.earliest(partitions) if self._is_own else {}

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset after the last record of each partition that the cluster has."""
        return self._ask(partitions, LATEST)

    def at(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """The offset of the first record at or after a timestamp; the end offset if there is none."""
        found = self._ask(partitions, timestamp_ms)
        without = [partition for partition, offset in found.items() if offset < 0]
        return found | (self.latest(without) if without else {})

    def _ask(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        with self._asked():
            return self._client.list_offsets(sorted(set(partitions)), timestamp_ms)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        try:
            yield
        except CommandError as error:
            raise CommandError(
                f"cannot ask the Kafka cluster at {self._client.bootstrap} for its offsets ({error.message})",
                hint="give a broker of the cluster that holds the topics with --end-offsets-from HOST:PORT",
                code=ExitCode.UNREACHABLE,
            ) from error
