"""Your own consumer on Quorate: a plain confluent-kafka program.

    quorate up --topic orders:12
    python examples/consumer.py

Start it several times and watch the partitions move; stop one with Ctrl-C or `kill -9`. Quorate keeps group
membership and offsets but no records: the loop commits offsets that it counts up, where yours would commit
what it has processed from elsewhere.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "billing",
        # Needed: Quorate speaks KIP-848, the consumer rebalance protocol of Kafka 4. Without this line
        # librdkafka speaks the classic one, and poll() returns an error ("Which clients" in README.md).
        "group.protocol": "consumer",
        "enable.auto.commit": False,
    }
)
next_offset: dict[tuple[str, int], int] = {}
closing = False


def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    if closing:  # librdkafka no longer answers committed(): asking would delay the leave until it times out
        return
    for found in consumer.committed(partitions, timeout=10):
        next_offset[found.topic, found.partition] = max(found.offset, 0)
    if partitions:
        print("mine now:", *(f"{p.topic}-{p.partition}" for p in partitions))


def on_revoke(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
    for partition in partitions:
        next_offset.pop((partition.topic, partition.partition), None)
    if partitions:
        print("given up:", *(f"{p.topic}-{p.partition}" for p in partitions))


consumer.subscribe(["orders"], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
try:
    while True:
        message = consumer.poll(0.5)
        if message is not None and message.error():
            sys.exit(f"error: {message.error()}")
        if not next_offset:
            continue
        for key in next_offset:
            next_offset[key] += 1
        try:
            consumer.commit(
                offsets=[
                    TopicPartition(topic, partition, offset)
                    for (topic, partition), offset in next_offset.items()
                ],
                asynchronous=False,
            )
        except KafkaException as error:
            print("not committed:", error)  # a rebalance or a restart; the next round commits again
        time.sleep(0.5)
except KeyboardInterrupt:
    print("leaving")
finally:
    closing = True
    consumer.close()
