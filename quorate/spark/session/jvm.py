"""The driver's JVM: started with the right Java and environment, its output in a folder, not on the terminal.

The folder is private and removed when this process ends, unless a session failed: code that reports the
failure calls `kept_logs`, which keeps the logs and returns their location.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from signal import Signals
from subprocess import Popen, TimeoutExpired
from traceback import walk_tb
from typing import Any

from quorate.spark.errors import PipelineError

from .java import find_java, write_shim
from .settings import conf_directory

SPARK_LOG = "spark.log"
OUTPUT = "output.log"
"""Output of the JVM and the Python workers, and of Java before logging is set up."""

_THROWN = re.compile(r"^(?:Exception in thread \S+|Caused by:) (?:[\w.$]+\.)(?:SparkException: )?")
"""The start of a Java report; the exception's own name stays where it is informative."""
_BESIDES = ("Error: ", "WARNING: ", "at ", "... ")

JAVA_SIGNAL = 128
"""Java's exit code after it handled a signal is the signal's number and this."""
ENDING_S = 5.0
"""Seconds for a JVM that has closed its connections to end; Spark removes its scratch files meanwhile."""

_folder: Path | None = None
_keeps_logs = False


def private_folder() -> Path:
    """A temporary folder of this process, readable by its user only."""
    global _folder
    if _folder is None:
        _folder = Path(tempfile.mkdtemp(prefix="quorate-spark-"))
        atexit.register(_clear, _folder)
    return _folder


def kept_logs() -> Path | None:
    """The folder with Spark's logs, kept from now on; None if they went elsewhere or do not exist."""
    global _keeps_logs
    if _folder is None or not (_folder / OUTPUT).exists():
        return None
    _keeps_logs = True
    return _folder


def launch(
    spark_home: Path, conf: Mapping[str, str], variables: Mapping[str, str | None], *, is_quiet: bool
) -> Any:
    """Start a JVM with ``conf`` and return a py4j gateway to it; raises `NoSpark`, `PipelineError`."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    java = find_java()
    folder = private_folder()
    home = java.home
    if java.lacks_module:
        home = folder / "java"
        if not home.exists():
            write_shim(java, home)
    told = SparkConf(loadDefaults=False)
    for key, value in conf.items():
        told.set(key, value)
    java_options = _logging_options(folder, spark_home, conf) if is_quiet else ""
    submit_options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {java_options}".strip()
    ours = {"JAVA_HOME": str(home), "SPARK_SUBMIT_OPTS": submit_options, "SPARK_REMOTE": None}
    with environment({**variables, **ours}), _output(folder / OUTPUT, is_quiet=is_quiet) as streams:
        try:
            return launch_gateway(told, popen_kwargs=streams)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            logs = kept_logs()
            said = _last_words(logs / OUTPUT) if logs else ""
            hint = f"Spark's own logs are in {logs}" if logs else "its output is above"
            raise PipelineError("Spark did not start" + said, hint) from error
        except BaseException as error:
            _end_processes_of(error)
            raise


def how_it_ended() -> str | None:
    """``ended by SIGKILL`` or ``ended with exit code 52``; None if it runs or another process started it."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None or _serves(SparkContext._active_spark_context):
        return None
    try:
        code = process.wait(ENDING_S)
    except TimeoutExpired:
        return None
    signal = -code if code < 0 else code - JAVA_SIGNAL
    if signal in set(Signals):
        return f"ended by {Signals(signal).name}"
    return f"ended with exit code {code}"


def _serves(context: Any) -> bool:
    """Whether the JVM answers and its SparkContext is not stopped; it stops first when the JVM is to end."""
    try:
        return context is None or not context._jsc.sc().isStopped()
    except Exception:  # py4j raises errors of several kinds
        return False


def _end_processes_of(error: BaseException) -> None:
    """Kill the process PySpark was starting: a JVM that cannot report back would run forever."""
    for frame, _ in walk_tb(error.__traceback__):
        for process in frame.f_locals.values():
            if isinstance(process, Popen):
                with process:  # waits until it has ended; does nothing to one that has
                    process.kill()


def python_variables(*, is_local: bool) -> dict[str, str | None]:
    """Environment variables that tell the JVM which Python to run; other machines have their own.

    Variables set by the user are left alone. Workers on this machine get our packages on their path.
    """
    variables: dict[str, str | None] = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local:
        variables |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    variables = {name: value for name, value in variables.items() if not os.environ.get(name)}
    home = str(Path(__file__).resolve().parent.parent.parent)
    if is_local and home not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        others = os.environ.get("PYTHONPATH")
        variables["PYTHONPATH"] = os.pathsep.join([home, others] if others else [home])
    return variables


@contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables (None: unset) while a child process is started."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _output(path: Path, *, is_quiet: bool) -> Iterator[dict[str, Any]]:
    """Popen arguments for a child's output: to a file, or inherited."""
    if not is_quiet:
        yield {}
        return
    with path.open("ab") as file:
        yield {"stdout": file, "stderr": file}


def _logging_options(folder: Path, spark_home: Path, conf: Mapping[str, str]) -> str:
    """Java options for our logging; none if the user configured logging."""
    theirs = list(conf_directory(spark_home).glob("log4j2*"))
    if theirs or any("log4j" in value for value in conf.values()):
        return ""
    configuration = folder / "log4j2.properties"
    configuration.write_text(resources.files(__package__).joinpath("log4j2.properties").read_text())
    return f"-Dlog4j2.configurationFile={configuration} -Dquorate.spark.log={folder / SPARK_LOG}"


def _last_words(output: Path) -> str:
    """The reason why Java did not start: the last output line that is no trace or notice of an exit."""
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith(_BESIDES)] or lines
    return f": {_THROWN.sub('', reasons[-1])}" if reasons else ""


def _clear(folder: Path) -> None:
    if not _keeps_logs:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for one in folder.iterdir():
        if one.is_dir():
            shutil.rmtree(one, ignore_errors=True)
