"""Shared by the commands of `quorate pipeline`: options of the session, progress, error handling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from quorate.commands.options import flag, option
from quorate.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from quorate.spark.errors import PipelineError

OF_THE_EXTRA = ("pyspark", "pandas", "pyarrow", "numpy", "matplotlib", "deltalake")
"""Packages in the extra `spark`."""

Input = Annotated[
    str,
    option(
        "--input -i",
        "PATH",
        "A node's directory, a folder with those of a cluster, or a copy; also in a store: s3://BUCKET/PATH.",
    ),
]
Output = Annotated[
    str, option("--output -o", "PLACE", "The folder of the tables, or a place in a store: s3://BUCKET/PATH.")
]
Mode = Annotated[
    str, option("--mode", "MODE", "How to handle damage: `fail`, or `permissive` (a row in findings).")
]
Master = Annotated[
    str | None,
    option(
        "--master",
        "URL",
        "Spark master: local[4], spark://host:7077, yarn, sc://host. Default: all cores of this machine.",
    ),
]
DriverMemory = Annotated[
    str | None, option("--driver-memory", "SIZE", "Memory of Spark's driver, such as 4g.")
]
Conf = Annotated[list[str] | None, option("--conf", "KEY=VALUE", "A Spark setting; may be repeated.")]
SparkLogs = Annotated[bool, flag("--spark-logs", "Show Spark's log output on the terminal.")]


@contextmanager
def refusals(*, only_reads: bool = False) -> Iterator[None]:
    """Turn the pipeline's errors into one line and an exit code; ``only_reads``: no output is written."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in OF_THE_EXTRA:
            raise
        from records.installation import how_to_install

        raise CommandError(
            f"{package} is not installed", hint=how_to_install("spark"), code=ExitCode.INSTALLATION
        ) from error
    except Exception as error:
        from quorate.spark.session.failures import unwrapped

        told = unwrapped(error)
        if told is None:
            raise
        code = _code(told)
        if only_reads and code is ExitCode.UNWRITTEN:
            code = ExitCode.UNREADABLE
        raise CommandError(told.message, hint=told.hint, code=code) from error


def _code(error: PipelineError) -> ExitCode:
    from quorate.spark import errors

    for kind, code in (
        (errors.NoSpark, ExitCode.INSTALLATION),
        (errors.InputError, ExitCode.UNREADABLE),
        (errors.OutputError, ExitCode.UNWRITTEN),
        (errors.OptionError, ExitCode.USAGE),
    ):
        if isinstance(error, kind):
            return code
    return ExitCode.FAILED
