"""Sessions without Spark: options and defaults, error messages, and the zip for executors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from quorate.spark.errors import InputError, NoSpark, OptionError, PipelineError
from quorate.spark.session import failures, jvm, sessions
from quorate.spark.session.failures import unwrapped
from quorate.spark.session.settings import (
    BRIEF_JAVA,
    check_master,
    conf_from_options,
    driver_mb,
    is_local,
    local_defaults,
    user_defaults,
)
from quorate.spark.session.shipping import write_zip
from records.installation import how_to_install
from tests.pipeline.no_spark import spark_error


@pytest.fixture(autouse=True)
def no_session_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the session of the suite's other tests."""
    monkeypatch.setattr(sessions, "present_session", lambda: None)
    monkeypatch.setattr(failures, "kept_logs", lambda: None)


def test_why_java_did_not_start_is_told_and_not_where(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_text(
        "WARNING: Using incubator modules\nError: A JNI error has occurred\n"
        'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n'
        "\tat java.base/java.util.zip.ZipFile.<init>(ZipFile.java:251)\n\t... 3 more\n"
    )
    assert jvm._last_words(output) == ": OutOfMemoryError: Java heap space"
    output.write_text('Exception in thread "main" org.apache.spark.SparkException: cores must be a number\n')
    assert jvm._last_words(output) == ": cores must be a number"
    output.write_text("Error: it could not be created\nToo small initial heap\n")
    assert jvm._last_words(output) == ": Too small initial heap"


def test_a_java_that_is_starting_ends_with_what_ends_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would start, have no parent to connect to, and stay for good."""
    script, began = tmp_path / "bin" / "spark-submit", tmp_path / "pid"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\necho $$ > {began}.part\nmv {began}.part {began}\nexec sleep 600\n")
    script.chmod(0o755)
    monkeypatch.setattr(jvm, "find_java", lambda: SimpleNamespace(home=tmp_path, lacks_module=False))

    def end(*_: object) -> None:
        if began.exists():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        with pytest.raises(KeyboardInterrupt):
            jvm.launch(tmp_path, {}, {"SPARK_HOME": str(tmp_path)}, is_quiet=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int(began.read_text()), 0)


def test_options_become_settings() -> None:
    told = conf_from_options("2g", ["spark.sql.shuffle.partitions=64", "spark.x = a=b "])
    assert told == {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "64", "spark.x": "a=b"}


@pytest.mark.parametrize("memory", ["2", "much", "2 g", "-1g", ""])
def test_a_driver_memory_that_is_none_is_refused(memory: str) -> None:
    with pytest.raises(OptionError, match="for example 2g"):
        conf_from_options(memory)


@pytest.mark.parametrize("pair", ["spark.x", "=1", "x=1"])
def test_a_setting_that_is_none_is_refused(pair: str) -> None:
    with pytest.raises(OptionError, match="--conf"):
        conf_from_options(conf=[pair])


def test_local_masters_stay_on_loopback_with_a_secret() -> None:
    assert [is_local(one) for one in ("local", "local[2]", "local[*]", "local[2,3]")] == [True] * 4
    assert not any(
        is_local(one) for one in ("local-cluster[2,1,1024]", "spark://localhost:7077", "yarn", "sc://x")
    )
    told = local_defaults("local[3]")
    assert told["spark.driver.bindAddress"] == told["spark.driver.host"] == "127.0.0.1"
    assert told["spark.authenticate"] == "true"
    assert told["spark.sql.shuffle.partitions"] == "12"
    assert 1024 <= driver_mb() <= 8192


SOUND = (
    *("local", "local[4]", "local[*]", "local[4,2]", "local[*, 3]", "local-cluster[2,1,1024]"),
    *("spark://a:7077,b:7077", "yarn", "k8s://https://a:6443"),
)


@pytest.mark.parametrize("master", SOUND)
def test_masters_that_spark_takes_are_taken(master: str) -> None:
    check_master(master)


class Launched(Exception):
    """Raised where a JVM would have been started with these settings."""

    def __init__(self, conf: dict[str, str]) -> None:
        self.conf = conf


@pytest.mark.parametrize(
    ("is_brief", "told", "options"),
    [
        (True, {}, BRIEF_JAVA),
        (False, {}, None),
        (True, {"spark.driver.extraJavaOptions": "-Xint"}, "-Xint"),
    ],
)
def test_a_brief_session_has_the_quick_compiler_alone_unless_it_is_told_otherwise(
    is_brief: bool, told: dict[str, str], options: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyspark = pytest.importorskip("pyspark")

    def launch(_: object, conf: dict[str, str], *__: object, **___: object) -> None:
        raise Launched(conf)

    monkeypatch.setattr(pyspark.SparkContext, "_gateway", None)
    monkeypatch.setattr(sessions, "launch", launch)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    with pytest.raises(Launched) as started:
        sessions.spark_session("local[2]", conf=told, is_brief=is_brief)
    assert started.value.conf.get("spark.driver.extraJavaOptions") == options
    assert "spark.driver.extraJavaOptions" not in local_defaults("local[2]")


@pytest.mark.parametrize(
    "master", ["foo://x", "local[0]", "local[two]", "local[4", "spark://", "Yarn", " local"]
)
def test_a_master_that_is_none_is_refused_before_anything_starts(
    master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark.SparkContext, "_gateway", None)
    monkeypatch.setattr(sessions, "launch", pytest.fail)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    with pytest.raises(OptionError, match="is not a Spark master; give local"):
        sessions.spark_session(master)


def test_the_users_defaults_are_read_as_spark_reads_them(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.master yarn\n\nspark.master   spark://a:7077\n"
        " spark.ui.enabled=true\nspark.x: y z \nhive.a b\n"
    )
    found = user_defaults(Path("/none"), {"SPARK_CONF_DIR": str(tmp_path)})
    assert found == {"spark.master": "spark://a:7077", "spark.ui.enabled": "true", "spark.x": "y z"}
    assert user_defaults(tmp_path / "nowhere", {}) == {}


def test_without_pyspark_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PYSPARK", "no_such_package")
    with pytest.raises(NoSpark) as refused, sessions.session_for():
        pass
    assert str(refused.value) == f"PySpark is not installed; {how_to_install('spark')}"


@pytest.mark.parametrize(
    ("master", "says"),
    [
        ("spark://127.0.0.1:1", "the Spark master cannot be reached"),
        ("sc://127.0.0.1:1", "Spark Connect server"),
    ],
)
def test_a_server_that_is_not_there_is_said_at_once(master: str, says: str) -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(PipelineError, match=says) as refused:
        sessions.spark_session(master)
    assert "127.0.0.1:1: Connection refused" in str(refused.value)


def test_what_a_worker_raised_of_ours_comes_out_whole() -> None:
    text = (
        "Job aborted due to stage failure: Task 1 in stage 6.0 failed 1 times\n"
        '  File "/x/reader.py", line 7, in read\n    raise InputError("no log", "copy it again")\n'
        "quorate.spark.errors.InputError: /data/node-1 is damaged; copy it again\n\n\tat org.apache.Base\n"
    )
    error = unwrapped(spark_error(text))
    assert isinstance(error, InputError)
    assert str(error) == "/data/node-1 is damaged; copy it again"


def test_an_error_that_spark_caused_is_found_behind_another() -> None:
    try:
        try:
            raise spark_error("Error\nModuleNotFoundError: No module named 'quorate.spark.source'")
        except Exception as error:
            raise RuntimeError("the run failed") from error
    except RuntimeError as outer:
        found = unwrapped(outer)
    assert found is not None
    assert "--py-files" in found.hint


NO_SETTING = (
    "An error occurred while calling o1.x.\nCaused by: org.apache.spark.SparkIllegalArgumentException:"
    " [INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'abc' in the config \"x.partitions\" is invalid."
    " It should be a/an 'int' value. SQLSTATE: 22022\n\tat org.x"
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ModuleNotFoundError: No module named 'msgpack'", "lacks the package msgpack"),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12",
            "another version of Python",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "ran out of memory"),
        (NO_SETTING, "x.partitions=abc is not a valid Spark setting; it should be a/an 'int' value"),
        ("org.apache.spark.SparkException: there is no such node", "Spark failed: there is no such node"),
        ("java.io.IOException: No space left on device", "a disk that Spark uses is full"),
        ("[SOME_CLASS] first line\nsecond line", "Spark failed: [SOME_CLASS] first line"),
        ("An error occurred while calling o1.x.\n: java.lang.Oops: no", "Spark failed: java.lang.Oops: no"),
        ("", "Spark failed: Spark gave no reason"),
    ],
)
def test_other_failures_are_one_line(text: str, says: str) -> None:
    error = unwrapped(spark_error(text))
    assert error is not None
    assert says in str(error)
    assert "\n" not in str(error)


def test_errors_of_others_are_not_ours_to_explain() -> None:
    assert unwrapped(ValueError("no")) is None
    mine = OptionError("bad")
    assert unwrapped(mine) is mine


def test_the_zip_is_the_same_each_time_and_every_module_imports_from_it(tmp_path: Path) -> None:
    for needed in ("pyspark", "numpy", "pyarrow", "matplotlib"):
        pytest.importorskip(needed)
    one, two = tmp_path / "one.zip", tmp_path / "two.zip"
    write_zip(one)
    write_zip(two)
    assert one.read_bytes() == two.read_bytes()
    modules = []
    with zipfile.ZipFile(one) as archive:
        for name in archive.namelist():
            assert "__pycache__" not in name
            if name.endswith(".py") and not name.endswith("__main__.py"):
                modules.append(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        assert "quorate/spark/session/log4j2.properties" in archive.namelist()
    script = (
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(one)!r})\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "for room in ('records', 'coordinator', 'raftlog', 'history', 'quorate'):\n"
        f"    assert sys.modules[room].__file__.startswith({str(one)!r}), room\n"
        "assert not {'cluster', 'quorate.app'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-I", "-c", script], check=True, cwd=tmp_path)


def test_a_zip_that_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot be written"):
        write_zip(tmp_path / "none" / "quorate.zip")
    assert list(tmp_path.iterdir()) == []
