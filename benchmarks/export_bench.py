"""Speed of exporting a log to tables, in each format, and of `log stats` on it, on one core.

The log is the mixed one of the replay benchmark: four records in five are offset commits. All tables are
written except `findings`, which needs the rows of whole groups. Rates are records of the log per CPU second
of one run.

    python -m benchmarks export
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.figures import cpu_seconds_of
from benchmarks.replay_bench import write_log
from history.answers.stats import stats
from history.export.formats import FORMATS
from history.export.schema import SCHEMAS
from history.export.tables import export
from history.reading.opening import open_node

TABLES = [name for name in SCHEMAS if name != "findings"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=200_000)
    wanted: int = parser.parse_args().records
    with tempfile.TemporaryDirectory() as directory:
        records, entries = write_log(str(Path(directory, "node")), wanted)
        print(f"mixed log of {records:,} records in {entries:,} entries")
        log = open_node(str(Path(directory, "node")))
        took = cpu_seconds_of(lambda: stats(log))
        print(f"  {'stats':20} {records / took:10,.0f} records per CPU second")
        for format_ in FORMATS:
            for names, label in ((["commits"], "commits"), (TABLES, "all tables")):
                folder = Path(directory, format_, label)
                took = cpu_seconds_of(lambda f=format_, o=folder, t=names: export(log, o, f, tables=t))  # type: ignore[misc]
                size = sum(path.stat().st_size for path in folder.iterdir())
                rate = f"{records / took:10,.0f} records per CPU second"
                print(f"  {format_ + ', ' + label:20} {rate}, {size / records:6.1f} bytes per record")


if __name__ == "__main__":
    main()
