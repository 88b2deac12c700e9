"""Kafka's own command line tools, run in one Java process that tests talk to (src/ToolBox.java).

`Tools.run` returns the output of a tool; a tool that fails or does not end in time fails the test with its
output. `rows` reads tables as these tools print them.
"""

from __future__ import annotations

import base64
import re
import select
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final

from benchmarks.apache import class_path

SOURCE: Final = Path(__file__).parent / "src" / "ToolBox.java"
ANSWER_S_MAX: Final = 60.0

CONSUMER_GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUPS: Final = "org.apache.kafka.tools.GroupsCommand"
TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
FEATURES: Final = "org.apache.kafka.tools.FeatureCommand"
CONSUMER_PERFORMANCE: Final = "org.apache.kafka.tools.ConsumerPerformance"
PRODUCER_PERFORMANCE: Final = "org.apache.kafka.tools.ProducerPerformance"
OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS: Final = "org.apache.kafka.tools.DeleteRecordsCommand"
CONSOLE_PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"


class ToolFailed(AssertionError):
    """A tool ended with an exit code other than 0; its output is the message."""


class Tools:
    """Runs tools against `bootstrap`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", "-XX:+UseSerialGC", quiet, "-cp", class_path(), str(SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="ascii",
        )

    def __enter__(self) -> Tools:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, tool: str, *arguments: str, bootstrap: str | None = None, reads: str = "") -> str:
        """Run a tool and return its output. Raises ToolFailed if its exit code is not 0."""
        code, printed = self.attempt(tool, *arguments, bootstrap=bootstrap, reads=reads)
        if code:
            raise ToolFailed(f"{tool} {' '.join(arguments)} ended with {code}:\n{printed}")
        return printed

    def attempt(
        self, tool: str, *arguments: str, bootstrap: str | None = None, reads: str = ""
    ) -> tuple[int, str]:
        """Run a tool and return its exit code and output.

        `bootstrap` restricts it to some of the nodes; `reads` is its standard input.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [reads, tool, "--bootstrap-server", bootstrap or self.bootstrap, *arguments]
        line = " ".join(base64.b64encode(word.encode()).decode() for word in words)
        print(line, file=self._process.stdin, flush=True)
        if not select.select([self._process.stdout], [], [], ANSWER_S_MAX)[0]:
            self._process.kill()
            raise ToolFailed(f"{tool} {' '.join(arguments)} did not end within {ANSWER_S_MAX} s")
        code, _, printed = self._process.stdout.readline().strip().partition(" ")
        return int(code), base64.b64decode(printed).decode()


def rows(printed: str, first_column: str = "GROUP") -> list[dict[str, str]]:
    """Return the tables in a tool's output: a dictionary per row, by column name."""
    found: list[dict[str, str]] = []
    columns: list[str] = []
    for line in printed.splitlines():
        cells = re.split(r"\s+", line.strip())
        if cells[0] == first_column:
            columns = cells
        elif columns and len(cells) == len(columns):
            found.append(dict(zip(columns, cells, strict=True)))
    return found
