"""``format("quorate")``: the classes that Spark calls; the neighbouring modules do the reading.

Filter pushdown is deliberately not supported (`options` explains why).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.errors import OptionError
from pipeline.schema import spark_type

from .options import Rows, SourceOptions, parse_options
from .plan import Task, plan
from .reading import read_task, settle


class QuorateSource(DataSource):
    """A Quorate log as rows."""

    @classmethod
    def name(cls) -> str:
        return "quorate"

    def schema(self) -> StructType:
        columns = parse_options(self.options).columns
        settle()
        return spark_type(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return SegmentReader(parse_options(self.options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .stream import LogStreamReader

        return LogStreamReader(parse_options(self.options, schema))


@dataclass
class SegmentPartition(InputPartition):
    """One segment or one snapshot."""

    task: Task


class SegmentReader(DataSourceReader):
    """Plans one partition per segment, and reads one."""

    def __init__(self, options: SourceOptions) -> None:
        for name in options.of_stream:
            raise OptionError(f"{name} is an option for streams only", "use readStream, or leave it out")
        if options.rows is Rows.SPANS:
            raise OptionError("rows=spans is for streams only", "use readStream, or rows=records")
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        tasks = [SegmentPartition(task) for task in plan(self._options)]
        settle()
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark passes a partition of its own if the plan is empty
        if isinstance(partition, SegmentPartition):
            yield from read_task(partition.task)
        settle()
