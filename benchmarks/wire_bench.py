"""Cost of the codec: operations per CPU-second of one core, best of several rounds.

Run `python -m benchmarks.wire_bench`, with `--json` for one JSON object. Rates of frames include headers and
length; rates of partitions count the partitions of requests that carry 1 or 100.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable

from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.framing import Framer
from wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.protocol import decode_request, encode_request, encode_response
from wire.refusals import refuse
from wire.schema import Message

ROUNDS = 5
ROUND_S_MIN = 0.1
MEMBER_ID = "mZ8vXoVgTqyu5rB1f8c0Ag"
OWNED = [TopicPartitions(topic_id=bytes(range(16)), partitions=list(range(12)))]


def rate_per_s(operation: Callable[[], object], operations: int = 1) -> float:
    """Operations per CPU-second, where one call performs `operations` of them."""
    count, best = 1, 0.0
    for _ in range(ROUNDS):
        while True:
            start = time.process_time()
            for _ in range(count):
                operation()
            spent_s = time.process_time() - start
            if spent_s >= ROUND_S_MIN:
                break
            count *= 2
        best = max(best, count * operations / spent_s)
    return best


def commit_of(partitions: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="payments",
        member_id=MEMBER_ID,
        generation_id_or_member_epoch=7,
        topics=[
            OffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=index * 1000, committed_metadata=""
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )


def heartbeat_rates() -> dict[str, float]:
    steady = ConsumerGroupHeartbeatRequest(group_id="payments", member_id=MEMBER_ID, member_epoch=7)
    full = ConsumerGroupHeartbeatRequest(
        group_id="payments",
        member_id=MEMBER_ID,
        rebalance_timeout_ms=300_000,
        rack_id="r1",
        subscribed_topic_names=["orders", "refunds"],
        server_assignor="uniform",
        topic_partitions=OWNED,
    )
    reply = ConsumerGroupHeartbeatResponse(member_id=MEMBER_ID, member_epoch=7, heartbeat_interval_ms=1000)
    moved = ConsumerGroupHeartbeatResponse(
        member_id=MEMBER_ID,
        member_epoch=8,
        heartbeat_interval_ms=1000,
        assignment=Assignment(topic_partitions=OWNED),
    )
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    steady_frame = encode_request(key, 1, 7, "rdkafka", steady)[4:]
    full_frame = encode_request(key, 1, 7, "rdkafka", full)[4:]
    return {
        "heartbeat_steady_decode_frame": rate_per_s(lambda: decode_request(steady_frame)),
        "heartbeat_full_decode_frame": rate_per_s(lambda: decode_request(full_frame)),
        "heartbeat_steady_encode_frame": rate_per_s(lambda: encode_response(key, 1, 7, reply)),
        "heartbeat_assignment_encode_frame": rate_per_s(lambda: encode_response(key, 1, 7, moved)),
    }


def commit_rates() -> dict[str, float]:
    rates: dict[str, float] = {}
    for partitions in (1, 100):
        request = commit_of(partitions)
        frame = encode_request(ApiKey.OFFSET_COMMIT, 9, 7, "rdkafka", request)[4:]
        reply = refuse(ApiKey.OFFSET_COMMIT, 9, request, ErrorCode.NONE)

        def decode(frame: bytes = frame) -> object:
            return decode_request(frame)

        def encode(reply: Message = reply) -> object:
            return encode_response(ApiKey.OFFSET_COMMIT, 9, 7, reply)

        def both(frame: bytes = frame, reply: Message = reply) -> None:
            decode_request(frame)
            encode_response(ApiKey.OFFSET_COMMIT, 9, 7, reply)

        rates |= {
            f"commit_{partitions}_decode_partitions": rate_per_s(decode, partitions),
            f"commit_{partitions}_encode_partitions": rate_per_s(encode, partitions),
            f"commit_{partitions}_both_partitions": rate_per_s(both, partitions),
        }
    return rates


def framing_rates() -> dict[str, float]:
    """16 pipelined heartbeats in one read, and each cut in two."""
    steady = ConsumerGroupHeartbeatRequest(group_id="payments", member_id=MEMBER_ID, member_epoch=7)
    stream = encode_request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, 7, "rdkafka", steady)
    framer = Framer(1 << 20)
    half = len(stream) // 2

    def cut() -> None:
        framer.feed(stream[:half])
        framer.feed(stream[half:])

    return {
        "frames_pipelined": rate_per_s(lambda: framer.feed(stream * 16), 16),
        "frames_cut_in_two": rate_per_s(cut),
    }


def first_use_ms() -> float:
    """Milliseconds until a fresh interpreter answers its first heartbeat, imports included; best of 5."""
    frame = encode_request(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, 7, "rdkafka", ConsumerGroupHeartbeatRequest(group_id="g")
    )[4:]
    script = (
        "import time; start = time.perf_counter()\n"
        "from wire.protocol import decode_request, encode_response\n"
        "from wire.refusals import refuse\n"
        "from wire.errors import ErrorCode\n"
        f"header, body = decode_request({frame!r})\n"
        "encode_response(68, 1, 7, refuse(68, 1, body, ErrorCode.NONE))\n"
        "print((time.perf_counter() - start) * 1000)\n"
    )
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    rates = heartbeat_rates() | commit_rates() | framing_rates()
    result = {f"{name}_per_s": round(rate) for name, rate in rates.items()}
    result["first_use_ms"] = round(first_use_ms())
    if parser.parse_args().json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:45} {value:>12,}")


if __name__ == "__main__":
    main()
