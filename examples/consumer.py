"""Your own consumer on Quorate: a plain confluent-kafka program.

    quorate up --nodes 3 --topic orders:12
    python examples/producer.py
    python examples/consumer.py                                # the classic protocol, or
    python examples/consumer.py 127.0.0.1:9092 consumer        # that of Kafka 4 (KIP-848)

Start it several times and watch the partitions move; stop one with Ctrl-C, SIGTERM or `kill -9`, or a node
with `quorate cluster kill 1`. CLIENT_ID is the name under which `quorate groups describe billing` shows it.
"""

import logging
import os
import signal
import sys
import time

from confluent_kafka import Consumer, KafkaError, TopicPartition

BOOTSTRAP = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"  # all nodes: one of them may be away at the start
LOG = logging.getLogger("consumer")


class OneLinePerPeriod(logging.Filter):
    """Lets one line per period pass and counts the others: a node that is away is dialled again and again."""

    def __init__(self, period_s: float = 30.0) -> None:
        super().__init__()
        self._period_s = period_s
        self._passed_s, self._left_out = float("-inf"), 0

    def filter(self, record: logging.LogRecord) -> bool:
        if time.monotonic() - self._passed_s < self._period_s:
            self._left_out += 1
            return False
        if self._left_out:
            record.msg = f"({self._left_out} lines left out) {record.msg}"
        self._passed_s, self._left_out = time.monotonic(), 0
        return True


def on_assign(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
    if partitions:
        print("mine now:", *(f"{p.topic}-{p.partition}" for p in partitions), flush=True)


def on_revoke(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
    if partitions:
        print("given up:", *(f"{p.topic}-{p.partition}" for p in partitions), flush=True)


def on_commit(error: KafkaError | None, _partitions: list[TopicPartition]) -> None:
    if error is not None:
        LOG.warning("a commit failed, the next one covers it: %s", error)


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    LOG.addFilter(OneLinePerPeriod())
    consumer = Consumer(
        {
            "bootstrap.servers": sys.argv[1] if len(sys.argv) > 1 else BOOTSTRAP,
            "client.id": os.environ.get("CLIENT_ID", f"billing-{os.getpid()}"),
            "group.id": "billing",
            "group.protocol": sys.argv[2] if len(sys.argv) > 2 else "classic",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "on_commit": on_commit,
        },
        logger=LOG,  # what librdkafka says, with our bound
    )
    stopping = False

    def stop(number: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True
        signal.signal(number, signal.SIG_DFL)  # the next one ends it: close() waits while no node is there

    signal.signal(signal.SIGTERM, stop)  # what `docker stop`, systemd and Kubernetes send
    signal.signal(signal.SIGINT, stop)
    consumer.subscribe(["orders"], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    try:
        while not stopping:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.fatal():
                    sys.exit(f"error: {error}")
                LOG.warning("%s", error)  # such as a topic that does not exist yet: librdkafka tries again
                continue
            place = f"{message.topic()}-{message.partition()} offset {message.offset()}"
            print(f"{place}: {message.value().decode()}", flush=True)
            consumer.commit(message)
        print("leaving", flush=True)
    finally:
        consumer.close()  # leaves the group: the others get the partitions at once


if __name__ == "__main__":
    main()
