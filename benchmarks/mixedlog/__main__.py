"""`python -m benchmarks.mixedlog DIR`: the log of a cluster's days; equal arguments give equal bytes."""

from __future__ import annotations

import argparse
import os
import time

from .life import write_life


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mixedlog", description=__doc__)
    parser.add_argument("directory", help="the node's directory to make")
    parser.add_argument("--records", type=int, default=1_000_000, help="about how many (default: 1000000)")
    parser.add_argument("--shards", type=int, default=2, help="group shards (default: 2)")
    parser.add_argument("--days", type=float, default=3, help="from the first entry to the last (default: 3)")
    parser.add_argument("--seed", type=int, default=1, help="another one makes another life (default: 1)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="shards written at a time")
    parser.add_argument("--deployments", metavar="FILE", help="also write what was deployed when, as CSV")
    said = parser.parse_args()
    started = time.perf_counter()
    try:
        life = write_life(
            said.directory,
            said.records,
            shards=said.shards,
            days=said.days,
            seed=said.seed,
            workers=said.workers,
        )
    except ValueError as error:
        parser.error(str(error))
    took = time.perf_counter() - started
    if said.deployments:
        life.plan.write_deployments(said.deployments)
    services, groups = len(life.plan.services), sum(len(one.groups) for one in life.plan.services)
    print(
        f"{life.records:,} records in {sum(one.entries for one in life.written):,} entries,"
        f" {groups:,} groups of {services:,} services, {len(life.plan.deployments):,} deployments;"
        f" {took:.1f} s, {life.records / took:,.0f} records/s"
    )


if __name__ == "__main__":
    main()
