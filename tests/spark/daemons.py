"""Spark's own processes on loopback: a standalone cluster and a Connect server from the installed PySpark.

A daemon is ready when its output says so; the output is read all the time, and its last lines are reported if
it never gets ready. Each daemon runs under a guard in a process group of its own. When the guard's input
ends, the group is killed, with the executors that a worker started: this stops the daemon, and it also ends
it if the process that started it is gone. The system chooses the ports.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from quorate.spark.session.java import find_java
from quorate.spark.session.settings import BRIEF_JAVA

READY_S = 60.0
"""A daemon is up within five seconds; the rest is for an overloaded machine."""
ENDING_S = 10.0
LINES_KEPT = 200

GUARD = """
import os, signal, subprocess, sys, threading
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
def watch():
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
sys.exit(child.wait())
"""

LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.out.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""


class Daemon:
    """One process whose output is read by a thread of ours."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str], cwd: Path) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._changed = threading.Condition()
        self._is_over = False
        self.process = subprocess.Popen(
            [sys.executable, "-c", GUARD, *command],
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def said(self, pattern: str, within_s: float = READY_S) -> re.Match[str]:
        """Return the first line that matches. Raises `AssertionError` with the output if none comes."""
        ends = time.monotonic() + within_s
        with self._changed:
            while True:
                for line in self.lines:
                    found = re.search(pattern, line)
                    if found:
                        return found
                left_s = ends - time.monotonic()
                if self._is_over or left_s <= 0:
                    raise AssertionError(f"no line {pattern!r} in the output:\n" + "\n".join(self.lines))
                self._changed.wait(left_s)

    def stop(self) -> None:
        """End the process and everything that it started."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        with suppress(ProcessLookupError):  # the guard has ended, but perhaps not all its children
            self.process.wait(ENDING_S)
            os.killpg(self.process.pid, signal.SIGKILL)
        self._reader.join(ENDING_S)
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip())
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__path__[0])


def spark_environment(scratch: Path) -> dict[str, str]:
    """Return the environment of Spark's processes: loopback, this Python, and none of our code on its path.

    Java spends no time on optimising.
    """
    conf = scratch / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "log4j2.properties").write_text(LOGGING)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(scratch),
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(scratch / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": BRIEF_JAVA,
        "SPARK_DAEMON_JAVA_OPTS": BRIEF_JAVA,
    }


@contextmanager
def standalone_cluster(scratch: Path, workers: int = 2) -> Iterator[str]:
    """Start a master and ``workers`` registered workers of one core each; yields the master's URL."""
    environment = {**spark_environment(scratch), "SPARK_DAEMON_MEMORY": "256m"}
    spark_class = spark_home() / "bin" / "spark-class"
    on_loopback = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = Daemon(
            [spark_class, "org.apache.spark.deploy.master.Master", *on_loopback], environment, scratch
        )
        stack.callback(master.stop)
        url = master.said(r"Starting Spark master at (spark://\S+)")[1]
        worker_class = "org.apache.spark.deploy.worker.Worker"
        has = ("--cores", "1", "--memory", "1g")
        started = []
        for number in range(workers):
            work = ("--work-dir", str(scratch / f"work-{number}"))
            worker = Daemon([spark_class, worker_class, *on_loopback, *has, *work, url], environment, scratch)
            stack.callback(worker.stop)
            started.append(worker)
        for worker in started:
            worker.said("Successfully registered with master")
        yield url


@contextmanager
def connect_server(scratch: Path, master: str = "local[2]") -> Iterator[str]:
    """Start a Connect server; yields its URL."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
    }
    server = Daemon(
        [
            spark_home() / "bin" / "spark-submit",
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", master),
            *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
        ],
        spark_environment(scratch),
        scratch,
    )
    try:
        port = server.said(r"Spark Connect server started at:? .*:(\d+)")[1]
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.stop()
