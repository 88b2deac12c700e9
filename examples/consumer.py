"""Your own consumer on Quorate: a plain confluent-kafka program.

    quorate up --topic orders:12
    python examples/producer.py
    python examples/consumer.py                              # the classic protocol, or
    python examples/consumer.py 127.0.0.1:9092 consumer      # the consumer protocol of Kafka 4 (KIP-848)

Start it several times and watch the partitions move; stop one with Ctrl-C or `kill -9`.
"""

import sys

from confluent_kafka import Consumer, TopicPartition

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "billing",
        "group.protocol": sys.argv[2] if len(sys.argv) > 2 else "classic",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
)


def on_assign(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
    if partitions:
        print("mine now:", *(f"{p.topic}-{p.partition}" for p in partitions), flush=True)


def on_revoke(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
    if partitions:
        print("given up:", *(f"{p.topic}-{p.partition}" for p in partitions), flush=True)


consumer.subscribe(["orders"], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
try:
    while True:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            sys.exit(f"error: {message.error()}")
        print(
            f"{message.topic()}-{message.partition()} offset {message.offset()}: {message.value().decode()}",
            flush=True,
        )
        consumer.commit(message)
except KeyboardInterrupt:
    print("leaving")
finally:
    consumer.close()
