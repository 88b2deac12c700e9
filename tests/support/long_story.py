"""The log of one busy group on a real disk: snapshots, archived segments, many commits."""

from __future__ import annotations

from raftlog.env.settings import LogSettings
from tests.support.disk_node import DiskNode, GroupMember

GROUP = "payments"
SMALL_SNAPSHOTS = LogSettings(snapshot_tail_records=200, segment_bytes=16_384)


def settle(node: DiskNode, *members: GroupMember) -> None:
    node.pass_ms(2_500, *members)


def long_story(home: str, commits: int = 300) -> tuple[DiskNode, dict[int, int]]:
    """Enough commits for snapshots and an archive; partition -> last committed offset."""
    node = DiskNode(home, num_shards=1, log=SMALL_SNAPSHOTS)
    node.create_topic("orders", 4)
    ann = node.member(GROUP, "app-1", "orders").join()
    last: dict[int, int] = {}
    for offset in range(commits):
        ann.commit({offset % 4: offset})
        last[offset % 4] = offset
        if offset % 20 == 0:
            node.pass_ms(500, ann)
    return node, last
