"""A small service with aiokafka, written for Apache Kafka: orders go in, and workers share them.

    quorate up --nodes 3 --topic orders:12
    python examples/with_aiokafka.py            # Ctrl-C ends it; try `quorate cluster kill 1` meanwhile

Nothing in it knows of Quorate but the default address.
"""

import asyncio
import itertools
import signal
import sys
from contextlib import asynccontextmanager, suppress

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC, GROUP = "orders", "shipping"
SECOND_WORKER_AFTER_S, SECOND_WORKER_FOR_S = 2, 10
STOPS_WITHIN_S = 5


class Report(ConsumerRebalanceListener):
    def __init__(self, worker: str) -> None:
        self.worker = worker

    async def on_partitions_revoked(self, revoked) -> None:
        if revoked:
            print(f"{self.worker} gives up {len(revoked)} partitions", flush=True)

    async def on_partitions_assigned(self, assigned) -> None:
        print(f"{self.worker} has {len(assigned)} partitions", flush=True)


@asynccontextmanager
async def running(client):
    """Start `client` and stop it. Without a limit, stop() never returns if the coordinator dies just then."""
    await client.start()
    try:
        yield client
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(STOPS_WITHIN_S):
                await client.stop()


async def take_orders(bootstrap: str) -> None:
    async with running(AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for number in itertools.count(1):
            order = f"order {number}"
            sent = await producer.send_and_wait(TOPIC, order.encode(), key=str(number).encode())
            if number % 50 == 0:
                print(f"{order} is {TOPIC}-{sent.partition} offset {sent.offset}", flush=True)
            await asyncio.sleep(0.01)


async def ship(bootstrap: str, worker: str) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest")
    consumer.subscribe([TOPIC], listener=Report(worker))
    async with running(consumer):
        shipped = 0
        async for _order in consumer:
            shipped += 1
            if shipped % 50 == 0:
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
