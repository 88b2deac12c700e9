"""A coordinator that a test plays by hand, and the member that it is played for."""

from __future__ import annotations

from typing import Any

from client.core.requests import RequestFailure, UnsentRequest
from tests.client.member_host import Agenda, MemberHost, built
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatResponse, TopicPartitions

ORDERS = b"orders" + bytes(10)
BILLS = b"bills" + bytes(11)
NAMES = {ORDERS: "orders", BILLS: "bills"}


class HeartbeatScript:
    """A coordinator by hand: requests wait in `asked` until a test answers them."""

    def __init__(self, version: int = 1, **settings: Any) -> None:
        self.agenda = Agenda()
        self.version = version
        self.asked: list[UnsentRequest] = []
        self.member = MemberHost(
            self.agenda, lambda _, request: self.asked.append(request), names=NAMES, **settings
        )

    def next(self) -> Any:
        """The body of the only request that waits."""
        assert len(self.asked) == 1, [request.api for request in self.asked]
        return built(self.asked[0], self.version)

    def answer(self, epoch: int = 1, given: dict[bytes, list[int]] | None = None, **fields: Any) -> None:
        parts = None
        if given is not None:
            parts = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=t, partitions=numbers) for t, numbers in given.items()
                ]
            )
        body = ConsumerGroupHeartbeatResponse(
            **{"member_id": "m1", "member_epoch": epoch, "heartbeat_interval_ms": 5_000, "assignment": parts}
            | fields
        )
        self.member.answer(self.asked.pop(0), body, version=self.version)

    def refuse(self, code: ErrorCode, message: str | None = None) -> None:
        body = ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
        self.member.answer(self.asked.pop(0), body, version=self.version)

    def fail(self, failure: RequestFailure = RequestFailure.DISCONNECTED) -> None:
        self.member.answer(self.asked.pop(0), None, failure, words=failure.value)

    def settle(self, given: dict[bytes, list[int]], epoch: int = 1) -> None:
        """Join, get an assignment, acknowledge it."""
        self.member.subscribe("orders")
        self.answer(epoch, given)
        self.agenda.run(0)
        self.answer(epoch)
        assert self.member.state == "STABLE"


def named_as_owned(body: Any) -> dict[bytes, list[int]] | None:
    if body.topic_partitions is None:
        return None
    return {part.topic_id: part.partitions for part in body.topic_partitions}
