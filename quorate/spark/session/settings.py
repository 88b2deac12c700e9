"""Configuration of a new session: defaults that yield to the user's settings, and command options.

The user's settings are, with later ones taking precedence, spark-defaults.conf and the command's options. Our
default for a key is only set if neither sets it, since the launcher's settings override the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from quorate.spark.errors import OptionError

DEFAULT_MASTER = "local[*]"
DRIVER_SHARE = 4
"""A local driver's share of the memory, 1 in 4; Python workers and the page cache need the rest."""
DRIVER_MIN_MB, DRIVER_MAX_MB = 1_024, 8_192
"""Bounds of a local driver's memory: below, Spark has no room to sort; above, a larger heap was no faster."""
PARTITIONS_PER_CORE = 4
"""Shuffle partitions per core in a local session, enough that one large group does not delay the rest."""

COMMON = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


def conf_from_options(driver_memory: str | None = None, conf: Sequence[str] = ()) -> dict[str, str]:
    """Settings from ``--driver-memory`` and each ``--conf KEY=VALUE``; raises `OptionError`."""
    told: dict[str, str] = {}
    for pair in conf:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise OptionError(
                f"--conf {pair!r} is not KEY=VALUE", "for example --conf spark.sql.shuffle.partitions=64"
            )
        if not key.strip().startswith("spark."):
            raise OptionError(
                f"--conf {key.strip()!r} is not a setting of Spark", "their names begin with `spark.`"
            )
        told[key.strip()] = value.strip()
    if driver_memory is not None:
        if not re.fullmatch(r"\d+[kmgtKMGT][bB]?", driver_memory):
            raise OptionError(
                f"--driver-memory {driver_memory!r} is not an amount of memory", "for example 2g or 900m"
            )
        told["spark.driver.memory"] = driver_memory
    return told


def check_master(master: str) -> None:
    """Raise `OptionError` for a master that Spark would reject, before a JVM is started."""
    if not _MASTER.fullmatch(master):
        raise OptionError(
            f"{master!r} is not a Spark master",
            "give local[4], spark://HOST:7077, yarn, k8s://https://HOST:PORT or sc://HOST:15002",
        )


_MASTER = re.compile(
    r"local(\[([1-9]\d*|\*)(, *\d+)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn", re.ASCII
)


def is_local(master: str) -> bool:
    """Whether driver and executors are one process on this machine."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options for a session of seconds, whose second compiler costs more than it gains in that time.

With it a first run over a thousand records took 42 s of processor time, without it 22 s.
"""


def local_defaults(master: str, *, is_brief: bool = False) -> dict[str, str]:
    """Defaults besides `COMMON` for a session whose driver and executors are one local process."""
    told = {"spark.driver.extraJavaOptions": BRIEF_JAVA} if is_brief else {}
    return told | {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.authenticate": "true",  # other users of this machine can reach loopback
        "spark.driver.memory": f"{driver_mb()}m",
        "spark.sql.shuffle.partitions": str(PARTITIONS_PER_CORE * _cores(master)),
    }


def user_defaults(spark_home: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings in the user's spark-defaults.conf."""
    try:
        lines = (conf_directory(spark_home, environ) / "spark-defaults.conf").read_text().splitlines()
    except OSError:
        return {}
    found = [re.match(r"\s*(spark\.[^\s=:]+)\s*[\s=:]\s*(.*\S)\s*$", line) for line in lines]
    return {match[1]: match[2] for match in found if match}


def conf_directory(spark_home: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the user's Spark configuration."""
    return Path(environ.get("SPARK_CONF_DIR") or spark_home / "conf")


def driver_mb() -> int:
    """The default memory of a local driver, in MiB."""
    return max(DRIVER_MIN_MB, min(DRIVER_MAX_MB, _memory_bytes() // DRIVER_SHARE // 2**20))


def _memory_bytes() -> int:
    """The machine's memory, or the container's limit if lower."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        allowed = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return machine
    return min(machine, int(allowed)) if allowed.isdecimal() else machine


def _cores(master: str) -> int:
    told = re.match(r"local\[(\d+)", master)
    if told:
        return max(1, int(told[1]))
    return (os.cpu_count() or 1) if master.startswith("local[*") else 1
