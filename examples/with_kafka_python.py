"""A small service with kafka-python, written for Apache Kafka: orders go in, and workers share them.

    quorate up --nodes 3 --topic orders:12
    python examples/with_kafka_python.py        # Ctrl-C ends it; try `quorate cluster kill 1` meanwhile

Nothing in it knows of Quorate but the default address.
"""

import itertools
import math
import signal
import sys
import threading
import time

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC, GROUP = "orders", "shipping"
SECOND_WORKER_AFTER_S, SECOND_WORKER_FOR_S = 2, 10
ends = threading.Event()


class Report(ConsumerRebalanceListener):
    def __init__(self, worker: str) -> None:
        self.worker = worker

    def on_partitions_revoked(self, revoked) -> None:
        if revoked:
            print(f"{self.worker} gives up {len(revoked)} partitions", flush=True)

    def on_partitions_assigned(self, assigned) -> None:
        print(f"{self.worker} has {len(assigned)} partitions", flush=True)


def take_orders(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","))
    for number in itertools.count(1):
        if ends.wait(0.01):
            break
        order = f"order {number}"
        sent = producer.send(TOPIC, order.encode(), key=str(number).encode()).get(timeout=30)
        if number % 50 == 0:
            print(f"{order} is {TOPIC}-{sent.partition} offset {sent.offset}", flush=True)
    producer.close()


def ship(bootstrap: str, worker: str, begin_s: float = 0, for_s: float = math.inf) -> None:
    ends.wait(begin_s)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), group_id=GROUP, auto_offset_reset="earliest"
    )
    consumer.subscribe([TOPIC], listener=Report(worker))
    shipped = 0
    leaves_s = time.monotonic() + for_s
    while not ends.is_set() and time.monotonic() < leaves_s:
        for orders in consumer.poll(timeout_ms=1_000).values():
            for _order in orders:
                shipped += 1
                if shipped % 50 == 0:
                    print(f"{worker} shipped {shipped} orders", flush=True)
    consumer.close()
    print(f"{worker} has left", flush=True)


def main() -> None:
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: ends.set())
    second = ("worker 2", SECOND_WORKER_AFTER_S, SECOND_WORKER_FOR_S)
    for work, *of_whom in ((take_orders,), (ship, "worker 1"), (ship, *second)):
        threading.Thread(target=work, args=(BOOTSTRAP, *of_whom)).start()
    ends.wait()
    print("done", flush=True)


if __name__ == "__main__":
    main()
