"""Your own producer on Quorate: a plain confluent-kafka program, for `python examples/consumer.py`.

`quorate up` keeps messages in memory: they are not durable, and gone after a restart or a failover.
"""

import itertools
import sys
import time

from confluent_kafka import KafkaError, Message, Producer

BOOTSTRAP = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"  # all nodes: one of them may be away at the start
QUIET = 2  # critical: it dials a node that is away again and again, and would say so each time

bootstrap = sys.argv[1] if len(sys.argv) > 1 else BOOTSTRAP
producer = Producer({"bootstrap.servers": bootstrap, "log_level": QUIET})


def on_delivery(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        print("not delivered:", error)
    else:
        place = f"{message.topic()}-{message.partition()} offset {message.offset()}"
        print(f"{message.value().decode()} is at {place}", flush=True)


try:
    for number in itertools.count(1):
        producer.produce("orders", f"order {number}", key=str(number), on_delivery=on_delivery)
        producer.poll(0)
        time.sleep(0.5)
except KeyboardInterrupt:
    producer.flush(10)
