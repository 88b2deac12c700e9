"""``format("quorate")``: the classes that Spark calls; the neighbouring modules do the reading.

Filter pushdown is deliberately not supported (`options` explains why).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from quorate.spark.errors import NoSpark, OptionError
from quorate.spark.schema import spark_type

from .options import Rows, SourceOptions, parse_options, remembered
from .plan import ReadOptions, Task, plan
from .reading import read_task, settle

STREAMS_HINT = "pip install 'pyspark[sql]>=4.2,<4.4'; spark.read works with this one"


class QuorateSource(DataSource):
    """A Quorate log as rows."""

    @classmethod
    def name(cls) -> str:
        return "quorate"

    def schema(self) -> StructType:
        columns = parse_options(self.options).columns
        settle()
        return remembered(spark_type(columns), self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return SegmentReader(parse_options(self.options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            from .stream import LogStreamReader
        except ImportError as missing:
            raise NoSpark(f"PySpark 4.1 has no {missing.name} for streams", STREAMS_HINT) from None

        return LogStreamReader(parse_options(self.options, schema))


@dataclass
class TaskPartition(InputPartition):
    """A packed task, without the options that its reader knows."""

    packed: bytes


class SegmentReader(DataSourceReader):
    """Plans one partition per large segment or several small ones, and reads one."""

    def __init__(self, options: SourceOptions) -> None:
        for name in options.of_stream:
            raise OptionError(f"{name} is an option for streams only", "use readStream, or leave it out")
        if options.rows is Rows.SPANS:
            raise OptionError("rows=spans is for streams only", "use readStream, or rows=records")
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        tasks = [TaskPartition(task.packed(with_options=False)) for task in plan(self._options)]
        settle()
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark passes a partition of its own if the plan is empty
        if isinstance(partition, TaskPartition):
            yield from read_task(Task.of(partition.packed, ReadOptions.of(self._options)))
        settle()
