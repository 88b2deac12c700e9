"""A small service with quorate.Consumer: orders go in, and workers share them.

    quorate up --nodes 3 --topic orders:12
    python examples/with_quorate.py             # Ctrl-C ends it; try `quorate cluster kill 1` meanwhile

It runs in the same way on Apache Kafka 4.0 or later. Offsets are committed after the work, and before
partitions go to another worker.
"""

import asyncio
import itertools
import signal
import sys

from confluent_kafka import Message, Producer

from quorate import Consumer, TopicPartition

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC, GROUP = "orders", "shipping"
SECOND_WORKER_AFTER_S, SECOND_WORKER_FOR_S = 2, 10


async def take_orders(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def sent(_error: object, message: Message) -> None:
        print(
            f"order {number} is {message.topic()}-{message.partition()} offset {message.offset()}", flush=True
        )

    for number in itertools.count(1):
        callback = sent if number % 50 == 0 else None
        producer.produce(TOPIC, f"order {number}".encode(), str(number).encode(), on_delivery=callback)
        producer.poll(0)
        await asyncio.sleep(0.01)


async def ship(bootstrap: str, worker: str) -> None:
    async def on_assign(consumer: Consumer, _new: list[TopicPartition]) -> None:
        print(f"{worker} has {len(consumer.assignment())} partitions", flush=True)

    async def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        await consumer.commit()
        print(f"{worker} gives up {len(partitions)} partitions", flush=True)

    async with Consumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        on_assign=on_assign,
        on_revoke=on_revoke,
    ) as consumer:
        shipped = 0
        async for _order in consumer:
            shipped += 1
            if shipped % 50 == 0:
                await consumer.commit()
                print(f"{worker} shipped {shipped} orders", flush=True)


async def ship_for_a_while(bootstrap: str, worker: str) -> None:
    await asyncio.sleep(SECOND_WORKER_AFTER_S)
    try:
        await asyncio.wait_for(ship(bootstrap, worker), SECOND_WORKER_FOR_S)
    except TimeoutError:
        print(f"{worker} has left", flush=True)


async def main() -> None:
    service = asyncio.current_task()
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, service.cancel)
    try:
        async with asyncio.TaskGroup() as work:
            work.create_task(take_orders(BOOTSTRAP))
            work.create_task(ship(BOOTSTRAP, "worker 1"))
            work.create_task(ship_for_a_while(BOOTSTRAP, "worker 2"))
    except asyncio.CancelledError:
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
