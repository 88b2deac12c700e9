"""A log in which two members share six partitions, and the second dies."""

from __future__ import annotations

from pathlib import Path

from tests.support.disk_node import DiskNode

GROUP = "billing"
"""Its log is of 2026-03-01 from 12:00:00 to 12:00:08.510 in UTC."""


def write_log(folder: Path) -> str:
    """Write the log as that of node 1 in a folder, and return the node's directory."""
    node = DiskNode(str(folder / "node-1"))
    node.create_topic("orders", 6)
    ann = node.member(GROUP, "app-1", "orders").join()
    node.pass_ms(2_000, ann)
    bob = node.member(GROUP, "app-2", "orders").join()
    node.pass_ms(3_000, ann, bob)
    node.pass_ms(6_000, ann)
    node.stop()
    return node.path
