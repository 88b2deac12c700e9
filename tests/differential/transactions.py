"""Requests of transactional producers: their ids, the offsets of their transactions, and how those end.

Each producer commits partitions of its own, so that a step can wait until its transaction has ended: Kafka
answers EndTxn before that, and other requests of the producer meanwhile with CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.differential.asked import Asked
from tests.differential.script import Step
from tests.differential.side import ClassicModel, ProducerModel, Side
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from wire.messages.end_txn import EndTxnRequest
from wire.messages.init_producer_id import InitProducerIdRequest
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TOPIC: Final = "t12"
PARTITIONS: Final = {"a": (0, 1), "b": (2, 3)}
ENDED_S_MAX: Final = 10.0
LOOK_AGAIN_S: Final = 0.02
TIMEOUT_MS: Final = 60_000
PRODUCERS: Final = (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN)


def ask_for(step: Step, side: Side, group_id: str) -> Asked | None:
    """Return the request to `side` at this step; None if the producer has no id yet."""
    model = side.producers.setdefault(step.who, ProducerModel())
    if step.verb not in ("tinit", "tfetch") and model.producer_id < 0:
        return None
    return VERBS[step.verb](step, side, model, group_id)


def _name(step: Step, group_id: str) -> str:
    return f"{step.get('name', step.who)}-{group_id}"


def _epoch(step: Step, model: ProducerModel) -> int:
    return {"before": model.epoch - 1, "above": model.epoch + 1}.get(step.get("epoch"), model.epoch)


def _init(step: Step, side: Side, model: ProducerModel, group_id: str) -> Asked:
    timeout_ms = int(step.get("timeout", str(TIMEOUT_MS)))
    body = InitProducerIdRequest(transactional_id=_name(step, group_id), transaction_timeout_ms=timeout_ms)
    return Asked(ApiKey.INIT_PRODUCER_ID, int(step.get("version", "4")), body)


def _add(step: Step, side: Side, model: ProducerModel, group_id: str) -> Asked:
    body = AddOffsetsToTxnRequest(
        transactional_id=_name(step, group_id),
        producer_id=model.producer_id,
        producer_epoch=_epoch(step, model),
        group_id=group_id,
    )
    return Asked(ApiKey.ADD_OFFSETS_TO_TXN, int(step.get("version", "3")), body)


def _commit(step: Step, side: Side, model: ProducerModel, group_id: str) -> Asked:
    member = side.classics.get(step.get("member"), ClassicModel())
    generation = member.generation + (1 if step.get("generation") == "above" else 0)
    part = TxnOffsetCommitRequestPartition(
        partition_index=int(step.get("partition", "0")),
        committed_offset=int(step.get("offset", "0")),
        committed_metadata=step.get("metadata"),
    )
    body = TxnOffsetCommitRequest(
        transactional_id=_name(step, group_id),
        group_id=group_id,
        producer_id=model.producer_id,
        producer_epoch=_epoch(step, model),
        generation_id=generation,
        member_id="stranger" if step.get("member") == "stranger" else member.member_id,
        topics=[TxnOffsetCommitRequestTopic(name=step.get("topic", TOPIC), partitions=[part])],
    )
    return Asked(ApiKey.TXN_OFFSET_COMMIT, int(step.get("version", "3")), body)


def _end(step: Step, side: Side, model: ProducerModel, group_id: str) -> Asked:
    body = EndTxnRequest(
        transactional_id=_name(step, group_id),
        producer_id=model.producer_id,
        producer_epoch=_epoch(step, model),
        committed=step.get("result", "commit") == "commit",
    )
    return Asked(ApiKey.END_TXN, int(step.get("version", "3")), body)


def _stable(step: Step, side: Side, model: ProducerModel, group_id: str) -> Asked:
    numbers = [*PARTITIONS["a"], *PARTITIONS["b"]] if step.who == "-" else list(PARTITIONS[step.who])
    wanted = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=numbers)
    group = OffsetFetchRequestGroup(group_id=group_id, topics=[wanted])
    body = OffsetFetchRequest(groups=[group], require_stable=step.get("stable", "1") == "1")
    return Asked(ApiKey.OFFSET_FETCH, 9, body)


VERBS: Final[dict[str, Callable[[Step, Side, ProducerModel, str], Asked]]] = {
    "tinit": _init,
    "tadd": _add,
    "tcommit": _commit,
    "tend": _end,
    "tfetch": _stable,
}


async def answer_of(step: Step, side: Side, asked: Asked, group_id: str) -> Any:
    """Ask, again while a transaction of the producer ends; after EndTxn, wait until it has ended."""
    deadline_s = time.monotonic() + ENDED_S_MAX
    while True:
        answer = await side.ask(asked.api, asked.version, asked.body)
        if _error_of(asked, answer) != ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline_s:
            break
        await asyncio.sleep(LOOK_AGAIN_S)
    if asked.api is ApiKey.INIT_PRODUCER_ID and not answer.error_code:
        model = side.producers[step.who]
        model.producer_id, model.epoch = answer.producer_id, answer.producer_epoch
    if asked.api in (ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID) and not answer.error_code:
        await _until_ended(step, side, group_id, deadline_s)
    return answer


def _error_of(asked: Asked, answer: Any) -> int:
    if asked.api is ApiKey.TXN_OFFSET_COMMIT:
        return int(answer.topics[0].partitions[0].error_code)
    return int(answer.error_code) if asked.api in PRODUCERS else 0


async def _until_ended(step: Step, side: Side, group_id: str, deadline_s: float) -> None:
    asked = _stable(Step("tfetch", step.who), side, side.producers[step.who], group_id)
    while time.monotonic() < deadline_s:
        answer = await side.ask(asked.api, asked.version, asked.body)
        codes = {part.error_code for topic in answer.groups[0].topics for part in topic.partitions}
        if ErrorCode.UNSTABLE_OFFSET_COMMIT not in codes:
            return
        await asyncio.sleep(LOOK_AGAIN_S)


def transactions(rng: random.Random) -> Iterator[Step]:
    """A script: two producers and a classic member in one group."""
    has_member = rng.random() < 0.5
    if has_member:
        yield Step("cjoin", "c", {"version": "3", "protocols": "range:@t12"})
        yield Step("csync", "c", {"assign": "range"})
    yield Step("tinit", "a")
    for _ in range(rng.randint(8, 25)):
        who = rng.choice("aab")
        args: dict[str, str] = {}
        if rng.random() < 0.1:
            args["epoch"] = rng.choice(("before", "above"))
        match rng.choices(
            ("tinit", "tadd", "tcommit", "tend", "tfetch", "ccommit", "cycle", "forget", "delete", "rejoin"),
            (8, 14, 18, 12, 12, 5, 12, 3, 2, 3),
        )[0]:
            case "tinit":
                yield Step("tinit", who, {"timeout": "0"} if rng.random() < 0.1 else {})
            case "tcommit":
                yield _some_commit(rng, who, has_member, args)
            case "tend":
                yield Step("tend", who, {**args, "result": rng.choice(("commit", "commit", "abort"))})
            case "tadd":
                yield Step("tadd", who, args)
            case "tfetch":
                yield Step("tfetch", "-", {"stable": rng.choice("110")})
            case "cycle":
                yield Step("tadd", who)
                yield _some_commit(rng, who, has_member, {})
                yield Step("tfetch", "-", {"stable": rng.choice("110")})
                yield Step("tend", who, {"result": rng.choice(("commit", "commit", "abort"))})
                yield Step("tfetch", "-")
            case "forget":
                yield Step("forget", "-", {"topic": TOPIC, "partition": str(rng.choice(PARTITIONS[who]))})
            case "delete":
                yield Step("delete")
            case "ccommit" if has_member:
                partition, offset = str(rng.choice(PARTITIONS[who])), str(rng.randrange(100))
                yield Step("ccommit", "c", {"topic": TOPIC, "partition": partition, "offset": offset})
            case "rejoin" if has_member:
                yield Step("cjoin", "c", {"version": "3", "protocols": "range:@t12"})
                yield Step("csync", "c", {"assign": "range"})
            case _:
                pass
    yield Step("tend", "a", {"result": "commit"})
    yield Step("tend", "b", {"result": "abort"})
    yield Step("tfetch", "-")


def _some_commit(rng: random.Random, who: str, has_member: bool, args: dict[str, str]) -> Step:
    partition = rng.choice(PARTITIONS[who])
    args = {**args, "partition": str(partition), "offset": str(rng.randrange(1, 1_000))}
    if has_member and rng.random() < 0.5:
        args["member"] = rng.choice(("c", "c", "c", "stranger"))
        if rng.random() < 0.2:
            args["generation"] = "above"
    if rng.random() < 0.06:
        args["topic"] = "nowhere"
    return Step("tcommit", who, args)
