"""Obtaining a SparkSession: the existing one, or a new one.

A new session's master is the first of: the one requested (``sc://…`` is Spark Connect), spark-submit's,
SPARK_REMOTE, the one in spark-defaults.conf, all cores of this machine.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from quorate.spark.errors import NoSpark, OptionError, PipelineError
from records.installation import how_to_install

from .failures import spark_errors
from .jvm import environment, launch, private_folder, python_variables
from .settings import COMMON, DEFAULT_MASTER, check_master, is_local, local_defaults, user_defaults
from .shipping import ship_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYSPARK = "pyspark"
REACHING_S = 10.0
"""Seconds within which a server must accept a connection; Spark itself would try for minutes."""


@contextmanager
def session_for(
    master: str | None = None,
    *,
    name: str = "quorate",
    conf: Mapping[str, str] | None = None,
    spark_logs: bool = False,
    is_brief: bool = False,
) -> Iterator[SparkSession]:
    """The existing session, left running afterwards, or a new one, which is stopped."""
    present = present_session()
    if present is not None:
        yield present
        return
    session = spark_session(master, name=name, conf=conf, spark_logs=spark_logs, is_brief=is_brief)
    try:
        yield session
    finally:
        session.stop()


def spark_session(
    master: str | None = None,
    *,
    name: str = "quorate",
    conf: Mapping[str, str] | None = None,
    spark_logs: bool = False,
    is_brief: bool = False,
) -> SparkSession:
    """The existing session, whatever the arguments, or a new one.

    ``conf`` overrides all defaults. ``spark_logs`` leaves Spark's output on the terminal. ``is_brief``
    optimises a local JVM for work of a few seconds. Raises `NoSpark` if PySpark or Java is missing,
    `PipelineError` if Spark cannot be reached or started.
    """
    require_pyspark()
    present = present_session()
    if present is not None:
        return present
    if not spark_logs:
        _hush()
    told, is_quiet = dict(conf or {}), not spark_logs
    with spark_errors():
        if is_submitted():
            return _submitted(name, told)
        remote = _remote(master)
        if remote is not None and not remote.startswith("local"):
            return _connected(remote, told)
        asked, is_connect = remote or master, remote is not None
        return _started(asked, name, told, is_quiet=is_quiet, is_remote=is_connect, is_brief=is_brief)


def present_session() -> SparkSession | None:
    """The active session of this thread or process, classic or of Connect."""
    for module in ("pyspark.sql.session", "pyspark.sql.connect.session"):
        if module in sys.modules:  # there can be no session before it is imported
            try:
                session: SparkSession = sys.modules[module].SparkSession.active()
            except Exception:  # no session; each kind raises its own exception
                continue
            if not _is_stopped(session):
                return session
    return None


def is_submitted() -> bool:
    """Whether spark-submit started this process and set up its JVM, master and settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def require_pyspark() -> None:
    if importlib.util.find_spec(PYSPARK) is None:
        raise NoSpark("PySpark is not installed", how_to_install("spark"))


def _is_stopped(session: SparkSession) -> bool:
    if hasattr(session, "is_stopped"):  # Connect's has it
        return bool(session.is_stopped)
    return session._sc._jsc is None


def _submitted(name: str, told: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC")
    return builder.config(map=dict(told)).getOrCreate()


def _remote(master: str | None) -> str | None:
    """The requested Connect server, or ``local…`` for one in a JVM of ours."""
    if master is not None:
        return master if master.startswith("sc://") else None
    return os.environ.get("SPARK_REMOTE")


def _connected(url: str, told: Mapping[str, str]) -> SparkSession:
    if importlib.util.find_spec("grpc") is None:
        raise NoSpark("Spark Connect needs packages of its own", how_to_install("spark", "connect"))
    if not any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        _reach(url.removeprefix("sc://").partition("/")[0], 15002, "the Spark Connect server")
    from pyspark.sql import SparkSession

    with environment({"SPARK_REMOTE": url}):  # another value there would conflict in Spark
        session = SparkSession.builder.remote(url).getOrCreate()
    with _stopped_on_failure(session):
        for key, value in {"spark.sql.session.timeZone": "UTC", **told}.items():
            session.conf.set(key, value)
        ship_code(session)
    return session


def _started(
    asked: str | None, name: str, told: Mapping[str, str], *, is_quiet: bool, is_remote: bool, is_brief: bool
) -> SparkSession:
    """A session whose driver is a new JVM, which later sessions of this process share."""
    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    spark_home = Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0])
    theirs = user_defaults(spark_home)
    master = asked or told.get("spark.master") or theirs.get("spark.master") or DEFAULT_MASTER
    check_master(master)
    defaults = {"spark.app.name": name, **COMMON}
    if is_local(master):
        defaults |= local_defaults(master, is_brief=is_brief)
        defaults["spark.sql.warehouse.dir"] = str(private_folder() / "warehouse")
        # PySpark reads it whenever a function is sent
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    elif master.startswith("spark://"):
        _reach(master.removeprefix("spark://"), 7077, "the Spark master")
    conf = {key: value for key, value in defaults.items() if key not in theirs}
    conf |= {key: value for key, value in told.items() if key != "spark.master"}
    if not SparkContext._gateway:
        variables = python_variables(is_local=is_local(master))
        gateway = launch(spark_home, {**conf, "spark.master": master}, variables, is_quiet=is_quiet)
        SparkContext._ensure_initialized(gateway=gateway)
    if is_remote:  # a Connect server in that JVM, already configured
        return SparkSession.builder.remote(master).getOrCreate()
    settings = SparkConf().setMaster(master)
    for key, value in conf.items():
        settings.set(key, value)
    session = SparkSession(SparkContext(conf=settings))
    if not is_local(master):
        with _stopped_on_failure(session):
            ship_code(session)
    return session


@contextmanager
def _stopped_on_failure(session: SparkSession) -> Iterator[None]:
    try:
        yield
    except BaseException:
        session.stop()
        raise


def _reach(addresses: str, default_port: int, what: str) -> None:
    """Raise `PipelineError` unless one of ``host:port,host:port`` accepts a connection."""
    reasons = []
    for address in addresses.split(","):
        try:
            parts = urlsplit(f"//{address}")
            host, port = parts.hostname, parts.port or default_port
        except ValueError:
            host = None
        if not host:
            raise OptionError(f"{address!r} is not the address of {what}", "it is HOST:PORT")
        try:
            socket.create_connection((host, port), timeout=REACHING_S).close()
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise PipelineError(
        f"{what} cannot be reached ({', '.join(reasons)})", "is it running, and is this its address?"
    )


def _hush() -> None:
    """Silence PySpark's and py4j's output on failures that we report; py4j also uses the root logger."""
    from pyspark.accumulators import AccumulatorTCPServer

    # a JVM that has ended is an EOFError there
    AccumulatorTCPServer.handle_error = _says_nothing  # type: ignore[assignment,method-assign]
    logging.getLogger().addFilter(_is_not_of_py4j)  # has no effect if repeated
    for name in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _says_nothing(server: object, request: object, client_address: object) -> None:
    """In place of a traceback on standard error (socketserver.BaseServer.handle_error)."""


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname
