"""`explain`, `timeline` and `verify` on groups whose members compute the targets."""

from __future__ import annotations

from pathlib import Path

from client.core.member.fields import on_the_wire
from history.checking.verify import report_text, verify
from history.render import UTC_STYLE
from history.telling.explain import explain
from history.telling.prose import explanation_text
from history.telling.story import NoteStep
from history.telling.timeline import timeline
from tests.support.computing_client import dealt_round, offer
from tests.support.disk_node import DiskNode
from tests.support.long_story import GROUP
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import TopicPartitions
from wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest
from wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from wire.messages.extended_consumer_group_heartbeat import (
    ExtendedConsumerGroupHeartbeatRequest,
    ExtendedConsumerGroupHeartbeatResponse,
)


def beat(node: DiskNode, epoch: int, metadata: bytes | None = None) -> ExtendedConsumerGroupHeartbeatResponse:
    request = ExtendedConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="ann", member_epoch=epoch)
    if metadata is not None:
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names = ["orders"]
        request.client_assignors = [on_the_wire(offer("warm", metadata=metadata))]
        owned: list[TopicPartitions] | None = [] if epoch == 0 else None
        request.topic_partitions = owned
    answer = node.group_request(GROUP, ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, 0, request, "app-1")
    assert isinstance(answer, ExtendedConsumerGroupHeartbeatResponse)
    assert answer.error_code == 0
    return answer


def compute(node: DiskNode, epoch: int) -> None:
    asked = ConsumerGroupPrepareAssignmentRequest(group_id=GROUP, member_id="ann", member_epoch=epoch)
    shown = node.group_request(GROUP, ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, 0, asked, "app-1")
    assert isinstance(shown, ConsumerGroupPrepareAssignmentResponse)
    request = ConsumerGroupInstallAssignmentRequest(
        group_id=GROUP,
        member_id="ann",
        member_epoch=epoch,
        group_epoch=shown.group_epoch,
        members=dealt_round(shown),
    )
    installed = node.group_request(GROUP, ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, 0, request, "app-1")
    assert installed.error_code == 0  # type: ignore[attr-defined]


def test_who_computed_is_told(tmp_path: Path) -> None:
    path = str(tmp_path / "node-1")
    node = DiskNode(path)
    node.create_topic("orders", 3)
    assert beat(node, 0, b"").should_compute_assignment
    compute(node, 1)
    assert beat(node, 1).member_epoch == 2
    beat(node, 2, b"warm now")
    compute(node, 2)
    assert beat(node, 2).member_epoch == 3
    node.stop()
    told = explain(path, GROUP, style=UTC_STYLE)
    ann = "ann (client app-1, 127.0.0.1)"
    notes = [step.text for step in told.steps if isinstance(step, NoteStep)]
    assert notes == [f"{ann} installed the target that it computed"] * 2
    assert told.epochs[-1].why == (f"{ann} changed its client-side assignors",)
    assert told.epochs[-1].state == "Stable"
    assert "installed the target" in "\n".join(explanation_text(told, UTC_STYLE))
    assert len([row for row in timeline(told) if "installed the target" in row.why]) == 2
    report = verify(path)
    assert report.ok, "\n".join(report_text(report))
