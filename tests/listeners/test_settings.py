"""Settings: all sources, their precedence, and errors that name the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.settings import Settings, SettingsError, load_settings, table
from coordinator.limits import Limits
from tests.configuration_page import render

ROOT = Path(__file__).parents[2]


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "node.toml"
    file.write_text(text)
    return file


def test_defaults_are_the_table() -> None:
    settings = load_settings(None, {})
    for row in table():
        assert getattr(settings, row.attribute) == row.default
    assert settings.group_consumer_session_timeout_ms == 45_000
    assert settings.group_consumer_heartbeat_interval_ms == 1_000
    assert settings.snapshot_tail_records == 200_000


def test_no_setting_is_a_section_of_another() -> None:
    names = [row.name for row in table()]
    assert not [(a, b) for a in names for b in names if b.startswith(a + ".")]


def test_every_row_gives_a_reason_and_every_number_its_bounds() -> None:
    for row in table():
        assert row.reason.endswith((".", "429.")), row.name
        if isinstance(row.default, int) and not isinstance(row.default, bool):
            assert row.low is not None, row.name
            assert row.high is not None, row.name
            is_number_or_port = row.name == "node.id" or row.name.endswith(".port")
            assert bool(row.unit) != is_number_or_port, row.name
        last = row.name.rsplit(".", 1)[-1]
        if last in ("ms", "bytes"):
            assert row.unit == last


def test_flags_override_environment_overrides_file(tmp_path: Path) -> None:
    file = written(tmp_path, "[kafka]\nport = 1\n[http]\nport = 2\n[group.consumer]\nmax.size = 3\n")
    env = {"QUORATE_HTTP_PORT": "20", "QUORATE_GROUP_CONSUMER_MAX_SIZE": "30", "HOME": "/"}
    settings = load_settings(file, env, {"group-consumer-max-size": "300", "node_id": None})
    assert (settings.kafka_port, settings.http_port, settings.group_consumer_max_size) == (1, 20, 300)


@pytest.mark.parametrize(
    "text",
    [
        "group.consumer.session.timeout.ms = 30_000",
        "[group.consumer]\nsession.timeout.ms = 30_000",
        "[group.consumer.session.timeout]\nms = 30000",
        '"group.consumer.session.timeout.ms" = 30000',
    ],
)
def test_a_dotted_name_may_be_spread_over_sections(tmp_path: Path, text: str) -> None:
    assert load_settings(written(tmp_path, text), {}).group_consumer_session_timeout_ms == 30_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "\n[kafka]\nprot = 9\n",
            r"node\.toml, line 3: unknown setting kafka\.prot; did you mean kafka\.port",
        ),
        ("zzz = 1\n", r"line 1: unknown setting zzz; `quorate settings` lists them all"),
        ("kafka = 3\n", r"line 1: unknown setting kafka"),
        ("[kafka]\nport = 'x'\n", r"line 2: kafka\.port must be an integer, not 'x'"),
        ("[kafka]\nport = true\n", r"line 2: kafka\.port must be an integer, not True"),
        ("[kafka]\nport = 70000\n", r"line 2: kafka\.port = 70000 is outside 0 to 65535 \(default 9092\)"),
        ("insecure = 1\n", r"line 1: insecure must be true or false, not 1"),
        ("group.consumer.assignors = [1]\n", r"line 1: group\.consumer\.assignors must be a list of strings"),
        (
            "group.consumer.assignors = []\n",
            r"line 1: group\.consumer\.assignors = \[\] must contain at least one",
        ),
        ("\nx = = 1\n", r"node\.toml: not TOML: .*line 2"),
        (
            "[group.consumer]\nheartbeat.interval.ms = 5000\nsession.timeout.ms = 2000\n",
            r"line 2: group\.consumer\.heartbeat\.interval\.ms = 5000 must be below .*= 2000",
        ),
        (
            "[group.consumer]\nsession.timeout.ms = 1\n",
            r"line 2: .*= 1 is outside .*min.* = 1000 to .* = 1800000",
        ),
        ("\nkafka.host = '0.0.0.0'\n", r"line 2: kafka\.host = '0\.0\.0\.0' can be reached .*--insecure"),
        ("log.level = 'loud'\n", r"line 1: log\.level = 'loud' must be"),
        ("log.format = 'xml'\n", r"line 1: log\.format = 'xml' must be text or json"),
    ],
)
def test_errors_name_place_and_way_out(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        load_settings(written(tmp_path, text), {})


def test_errors_of_the_other_sources(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"variable QUORATE_KAFKA_PROT: unknown .* did you mean kafka.port"
    ):
        load_settings(None, {"QUORATE_KAFKA_PROT": "1"})
    with pytest.raises(SettingsError, match=r"flag --kafka-port: kafka.port must be an integer"):
        load_settings(None, {}, {"kafka_port": "1.5"})
    with pytest.raises(SettingsError, match=r"missing.toml: cannot be read: No such file"):
        load_settings(tmp_path / "missing.toml", {})
    (tmp_path / "bytes.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(SettingsError, match=r"not UTF-8 at byte 5"):
        load_settings(tmp_path / "bytes.toml", {})
    (tmp_path / "big.toml").write_bytes(b"#" * (1 << 20) + b"#")
    with pytest.raises(SettingsError, match=r"larger than 1048576 bytes"):
        load_settings(tmp_path / "big.toml", {})


def test_beyond_loopback_only_when_asked_for() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        assert Settings(kafka_host=host).kafka_host == host
    with pytest.raises(SettingsError, match=r"http.host = 'example.org'"):
        Settings(http_host="example.org")
    assert Settings(http_host="example.org", insecure=True).insecure


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"kafka_host": "0.0.0.0", "insecure": True}, r"kafka\.advertised\.host"),
        ({"kafka_host": "::", "insecure": True}, r"kafka\.advertised\.host"),
        ({"kafka_host": "", "insecure": True}, r"kafka\.host must not be empty"),
        ({"http_host": "", "insecure": True}, r"http\.host must not be empty"),
        ({"data_dir": ""}, r"data\.dir must not be empty"),
        ({"group_consumer_assignors": ("sticky",)}, r"assignors contains 'sticky', .* uniform, range"),
        ({"group_coordinator_rebalance_protocols": ("classic",)}, r"must be classic,consumer, or consumer"),
        ({"group_coordinator_rebalance_protocols": ("consumer", "streams")}, r"must be classic,consumer"),
        ({"group_min_session_timeout_ms": 1_800_001}, r"1800001 must not exceed .*max\.session.* = 1800000"),
        ({"num_partitions": 9, "partitions_per_topic_max": 8}, r"num\.partitions = 9 must not exceed"),
    ],
)
def test_values_that_would_only_fail_later_are_refused(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        Settings(**values)


def test_every_address_with_one_to_advertise() -> None:
    settings = Settings(kafka_host="0.0.0.0", kafka_advertised_host="node.example", insecure=True)
    assert settings.kafka_advertised_host == "node.example"


def test_environment_spells_lists_booleans_and_grouped_numbers() -> None:
    settings = load_settings(
        None,
        {
            "QUORATE_GROUP_CONSUMER_ASSIGNORS": "range, uniform",
            "QUORATE_INSECURE": "yes",
            "QUORATE_SNAPSHOT_TAIL_RECORDS": "50_000",
            "QUORATE_LOG_ARCHIVE_RETENTION_MS": "-1",
        },
    )
    assert settings.group_consumer_assignors == ("range", "uniform")
    assert settings.insecure
    assert settings.snapshot_tail_records == 50_000


def test_the_document_is_the_table() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == render(), (
        "run `python -m tests.configuration_page > docs/configuration.md`"
    )


def test_every_bound_of_the_coordinator_that_is_a_setting_reaches_it() -> None:
    settings = Settings(
        groups_max=11,
        topics_per_member_max=12,
        topics_max=13,
        partitions_per_topic_max=14,
        num_partitions=10,
        group_coordinator_rebalance_protocols=("consumer",),
        group_initial_rebalance_delay_ms=15,
        group_min_session_timeout_ms=16,
        group_max_session_timeout_ms=17,
        group_max_size=18,
    )
    assert settings.limits() == Limits(
        groups_max=11,
        topics_per_member_max=12,
        topics_max=13,
        partitions_per_topic_max=14,
        num_partitions_default=10,
        serves_classic=False,
        classic_initial_delay_ms=15,
        classic_session_timeout_min_ms=16,
        classic_session_timeout_max_ms=17,
        classic_group_size_max=18,
    )
    assert Settings().limits() == Limits()
