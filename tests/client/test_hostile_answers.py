"""Answers with any error code, and with parts left out, doubled or invented: calls end by their deadlines."""

from __future__ import annotations

import random
from concurrent.futures import Future
from typing import Any

import pytest

from client.core.errors import ConsumerError
from client.core.requests import RequestFailure
from client.core.types import TopicPartition
from tests.client.data_rig import DataRig, SentRequest
from tests.client.member_host import Agenda, MemberHost
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from wire.schema import Message

A, B, C = (TopicPartition("orders", number) for number in range(3))

NUMBERS = (-(2**31), -2, -1, 0, 1, 2**31 - 1)
CODES = (0, 0, 0, -1, 1, 3, 6, 14, 15, 16, 22, 25, 30, 74, 100, 110, 113, 999, 32_767)


def distort(answer: Any, chance: random.Random) -> Any:
    """Change codes and numbers of an answer, and leave out or double elements of its lists."""
    for name in answer.__dataclass_fields__ if hasattr(answer, "__dataclass_fields__") else ():
        value = getattr(answer, name)
        if isinstance(value, list):
            kept = [one for one in value for _ in range(chance.choice((0, 1, 1, 1, 2)))]
            setattr(answer, name, kept)
            for one in value:
                if isinstance(one, Message):
                    distort(one, chance)
        elif name == "error_code" and chance.random() < 0.4:
            answer.error_code = chance.choice(CODES)
        elif name in ("partition_index", "throttle_time_ms", "leader_epoch") and chance.random() < 0.2:
            setattr(answer, name, chance.choice(NUMBERS))
        elif name in ("offset", "committed_offset", "high_watermark") and chance.random() < 0.2:
            setattr(answer, name, chance.choice((-(2**63), -2, -1, 0, 2**63 - 1)))
    return answer


@pytest.mark.parametrize("seed", range(40))
def test_calls_end_by_their_deadlines_under_distorted_answers(seed: int) -> None:
    chance = random.Random(seed)
    rig = DataRig()
    rig.metadata.lead("orders", {0: 1, 1: 1, 2: 2})
    for partition in (A, B, C):
        rig.logs[partition].append(b"one")

    def script(request: SentRequest) -> Message | RequestFailure | None:
        if chance.random() < 0.1:
            return chance.choice(list(RequestFailure)[:4])
        answer = rig._serve(request)
        return None if answer is None else distort(answer, chance)

    for api in (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT):
        rig.scripts[api] = script
    rig.assign({A: None, B: 0, C: -2})
    futures: list[Future[Any]] = []
    for _ in range(10):
        futures.append(rig.commit({A: 1, C: 2}, timeout_ms=2_000))
        futures.append(rig.ask_committed(A, B, C, timeout_ms=2_000))
        futures.append(rig.ask_offsets({A: -1, B: -2, C: 5}, timeout_ms=2_000))
        rig.run(300)
        try:
            rig.handler.take(10)
        except ConsumerError:
            continue
    rig.run(2_100)
    assert all(future.done() for future in futures)
    assert len(rig.sent) < 3_000


@pytest.mark.parametrize("seed", range(40))
def test_a_member_survives_any_answer_and_its_leave_ends(seed: int) -> None:
    chance = random.Random(seed)
    agenda = Agenda()
    sent = 0

    def answer(host: MemberHost, request: Any) -> None:
        nonlocal sent
        sent += 1
        request.build(1)
        parts = [
            TopicPartitions(topic_id=bytes([number]) * 16, partitions=[chance.choice((-1, 0, 1)), 0])
            for number in chance.choices(range(4), k=chance.randrange(4))
        ]
        body = ConsumerGroupHeartbeatResponse(
            error_code=chance.choice(CODES),
            member_epoch=chance.choice((*NUMBERS, 1, 2, 3)),
            heartbeat_interval_ms=chance.choice((*NUMBERS[:5], 1_000)),
            assignment=chance.choice((None, Assignment(topic_partitions=parts))),
        )
        if chance.random() < 0.1:
            agenda.after(1, lambda: host.answer(request, None, chance.choice(list(RequestFailure)[:6])))
        else:
            agenda.after(1, lambda: host.answer(request, body))

    host = MemberHost(agenda, answer, names={b"\0" * 16: "t0", b"\1" * 16: "t1"})
    host.subscribe("t0", "t1")
    host.poll_every(500)
    agenda.run(20_000)
    future = host.leave(timeout_ms=5_000)
    agenda.run(5_100)
    assert future.done()
    assert sent < 1_000
