"""Workers that share tenants by leases, and write their work to a database that keeps late writes out.

    quorate up --nodes 3 --topic tenants:8
    python examples/leases.py        # in several terminals; Ctrl-C, Ctrl-Z and `fg`, or kill -9 some of them

A worker that was suspended for longer than its session may write once more when it goes on. The table `fence`
refuses that: the partition's new owner has a higher token (docs/leases.md).
"""

import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import suppress

import quorate

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
DATABASE = sys.argv[2] if len(sys.argv) > 2 else "tenants.db"
STEP_S = 0.05

TABLES = """
CREATE TABLE IF NOT EXISTS fence (topic text, part int, token bigint NOT NULL, PRIMARY KEY (topic, part));
CREATE TABLE IF NOT EXISTS steps (part int, token bigint, pid int);
"""
GUARD = """
INSERT INTO fence VALUES (:topic, :partition, :token)
ON CONFLICT (topic, part) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token
"""
STEP = "INSERT INTO steps VALUES (:partition, :token, :pid)"


def write(database: sqlite3.Connection, lease: quorate.Lease) -> bool:
    """Make one step of the work. Returns False if a later owner has written already."""
    values = {**lease._asdict(), "pid": os.getpid()}
    with database:  # one transaction
        if not database.execute(GUARD, values).rowcount:
            return False
        database.execute(STEP, values)
    return True


async def main() -> None:
    database = sqlite3.connect(DATABASE, timeout=30)
    database.executescript(TABLES)

    async def work(lease: quorate.Lease) -> None:
        print(f"tenant {lease.partition} is ours, token {lease.token}", flush=True)
        try:
            while write(database, lease):
                await asyncio.sleep(STEP_S)
            print(f"tenant {lease.partition}: a later owner has written, token {lease.token}", flush=True)
        finally:
            print(f"tenant {lease.partition} is not ours any more", flush=True)

    async with quorate.lease("housekeeping", "tenants", bootstrap_servers=BOOTSTRAP) as partitions:
        running = asyncio.ensure_future(partitions.run(work))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, running.cancel)
        with suppress(asyncio.CancelledError):
            await running


try:
    asyncio.run(main())
except quorate.KafkaError as error:  # such as a topic that does not exist
    sys.exit(f"leases.py: {error}")
