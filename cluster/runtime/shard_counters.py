"""The counters of a shard's runtime: plain integers, read when metrics are requested."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from records import Cause, RawRecord, ReasonKind, RecordType, Trigger

_OFFSET_COMMIT, _GROUP_EPOCH = int(RecordType.OFFSET_COMMIT), int(RecordType.CONSUMER_GROUP_METADATA)


@dataclass(slots=True)
class ShardCounters:
    """Totals since the node started."""

    requests: int = 0
    refused: int = 0  # answered by the runtime itself: not leader, loading, no room
    failures: int = 0  # handlers that raised
    entries_appended: int = 0
    records_appended: int = 0
    bytes_appended: int = 0
    commits: int = 0  # committed offsets, one per partition
    offsets_expired: int = 0  # removed because their retention was over
    rebalances: int = 0  # group epochs begun
    assignor_failures: int = 0  # due targets that could not be computed
    replies_held: int = 0
    replies_expired: int = 0
    elections_won: int = 0
    leads_lost: int = 0  # to a new term that this node did not plan
    leads_handed_over: int = 0

    def count(self, cause: Cause, records: list[RawRecord], body_bytes: int) -> None:
        """Count one decision that was appended."""
        self.entries_appended += 1
        self.records_appended += len(records)
        self.bytes_appended += body_bytes
        is_expiry = cause.trigger == Trigger.OFFSETS_EXPIRED
        for type_, _, _, value in records:
            if value is None:
                self.offsets_expired += is_expiry and type_ == _OFFSET_COMMIT
                continue
            if type_ == _OFFSET_COMMIT:
                self.commits += 1
            elif type_ == _GROUP_EPOCH:
                self.rebalances += 1
        if any(reason.kind == ReasonKind.GROUP_UPGRADED for reason in cause.reasons):
            self.rebalances -= 1  # the group's generation became its epoch

    def as_dict(self) -> dict[str, int]:
        return asdict(self)
