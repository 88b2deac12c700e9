"""Settings are named and checked; what is wrong is refused with the name of what is right."""

from __future__ import annotations

from typing import Any

import pytest

from client.core.errors import ConfigError
from client.core.setting_kinds import reset_duration_ms
from client.core.settings import ELSEWHERE, OTHER_NAMES, REFUSED, ConsumerSettings, read_settings, table

from .settings_section import PAGE, replaced

SERVER = {"bootstrap.servers": "localhost"}
EXAMPLES: dict[str, Any] = {
    "an ssl.SSLContext": object(), "a function": print, "host:port,…": "a:1", "objects": (), "text": "text",
    "secret text": "secret", "true, false": "true",
}  # fmt: skip
"""A value that a setting takes, by what the table says that it accepts."""


def refusal(**settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read_settings(SERVER, settings)
    return str(caught.value)


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text() == replaced(PAGE.read_text()), "run python -m tests.client.settings_section"


def test_defaults_are_those_of_the_table() -> None:
    settings = read_settings(SERVER)
    assert settings == ConsumerSettings(bootstrap_servers=(("localhost", 9092),))
    assert settings.max_poll_interval_ms == 300_000


def test_names_have_dots_or_underscores_and_texts_are_converted() -> None:
    settings = read_settings(SERVER, {"fetch.min.bytes": "7", "group_id": "g", "enable.auto.commit": "False"})
    assert (settings.fetch_min_bytes, settings.group_id, settings.enable_auto_commit) == (7, "g", False)


@pytest.mark.parametrize("name", [name for name, _, row in table() if row.accepts in EXAMPLES])
def test_each_row_takes_what_it_says(name: str) -> None:
    row = next(row for each, _, row in table() if each == name)
    row.read(EXAMPLES[row.accepts])


def test_other_clients_names_lead_to_settings_of_the_table() -> None:
    names = {name for name, _, _ in table()}
    assert set(OTHER_NAMES.values()) <= names
    assert not (set(OTHER_NAMES) | set(REFUSED)) & names
    assert read_settings(SERVER, {"ssl_cafile": "ca.pem"}).ssl_ca_location == "ca.pem"
    assert read_settings(SERVER, {"auto.offset.reset": "smallest"}).auto_offset_reset == "earliest"


@pytest.mark.parametrize(
    ("duration", "expected_ms"),
    [("P3D", 259_200_000), ("PT1H30M", 5_400_000), ("pt0.25s", 250), ("P0D", 0), ("P999999999D", None)],
)
def test_a_duration_is_a_place_to_begin_at(duration: str, expected_ms: int | None) -> None:
    given = f"by_duration:{duration}"
    assert read_settings(SERVER, {"auto.offset.reset": given}).auto_offset_reset == given
    assert expected_ms in (None, reset_duration_ms(given))


@pytest.mark.parametrize(
    "wrong", ["", "P", "PT", "-P1D", "P-1D", "1D", "P1Y", "PT1H1H", "P1D2", "P" + "9" * 5_000 + "D"]
)
def test_a_wrong_duration_is_refused_with_an_example(wrong: str) -> None:
    assert "has no duration such as P3D" in refusal(auto_offset_reset=f"by_duration:{wrong}")


def test_servers_are_read_from_texts_and_lists() -> None:
    given = {"bootstrap.servers": "PLAINTEXT://one:1, two ,[::1]:3"}
    assert read_settings(given).bootstrap_servers == (("one", 1), ("two", 9092), ("::1", 3))
    assert read_settings({"bootstrap_servers": ["one:1", "[::1]"]}).bootstrap_servers == (
        ("one", 1), ("::1", 9092),
    )  # fmt: skip


def test_an_unknown_setting_is_refused_with_the_nearest_right_one() -> None:
    assert refusal(grup_id="g") == "there is no setting 'grup_id'; did you mean group.id?"
    assert refusal(sasl_plain_user="u").endswith("did you mean sasl.username?")
    assert refusal(x="") == "there is no setting 'x'"


@pytest.mark.parametrize("name", REFUSED)
def test_settings_of_the_coordinator_are_refused_with_a_sentence(name: str) -> None:
    assert "is the coordinator's" in refusal(**{name: 1})


@pytest.mark.parametrize("name", ELSEWHERE)
def test_common_settings_of_other_clients_are_refused_with_what_stands_for_them(name: str) -> None:
    assert refusal(**{name: "x"}) == f"there is no setting {name!r} here; use {ELSEWHERE[name]}"


@pytest.mark.parametrize(
    "given", [{"fetch_max_wait_ms": 30_000}, {"request_timeout_ms": 500}, {"request_timeout_ms": 1}]
)
def test_a_wait_for_messages_that_no_request_survives_is_refused(given: dict[str, int]) -> None:
    assert "must be less than request.timeout.ms" in refusal(**given)
    read_settings(SERVER, given, fetches=False)


def test_waits_just_below_the_time_limit_of_requests_are_taken() -> None:
    assert read_settings(SERVER, {"fetch_max_wait_ms": 29_999}).fetch_max_wait_ms == 29_999
    assert read_settings(SERVER, {"request_timeout_ms": 501}).request_timeout_ms == 501


def test_the_classic_protocol_is_refused_with_a_sentence() -> None:
    assert "is not spoken by this client" in refusal(group_protocol="classic")
    assert read_settings(SERVER, {"group.protocol": "CONSUMER"}).group_protocol == "consumer"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("fetch.min.bytes", -1, "is not between 0 and"),
        ("fetch.min.bytes", True, "is not a whole number"),
        ("fetch.min.bytes", "many", "is not a whole number"),
        ("fetch.min.bytes", [], "is not a whole number"),
        ("check.crcs", 1, "is neither true nor false"),
        ("isolation.level", "serializable", "is none of read_uncommitted, read_committed"),
        ("group.id", "", "is not a text"),
        ("group.id", 7, "is not a text"),
        ("group.protocol", "share", "is not consumer"),
        ("key.deserializer", "utf-8", "cannot be called"),
        ("group.local.assignors", "range", "no name or no method assign"),
    ],
)
def test_a_wrong_value_is_refused_with_its_reason(name: str, value: object, reason: str) -> None:
    words = refusal(**{name: value})
    assert words.startswith(f"{name}=")
    assert reason in words


@pytest.mark.parametrize("servers", ["", " , ", [], "host:", "host:0", "host:x", ":9092", 7, "host:70000"])
def test_wrong_servers_are_refused(servers: object) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap.servers"):
        read_settings({"bootstrap.servers": servers})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"group_remote_assignor": "range", "group_local_assignors": []}, None),
        ({"enable_auto_commit": True}, "needs group.id"),
        ({"sasl_mechanism": "PLAIN"}, "need each other"),
        ({"security_protocol": "SASL_SSL"}, "need each other"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "sasl.oauthbearer.token.callback",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"},
            "needs sasl.username and sasl.password",
        ),
        ({"client_id": "a", "client.id": "b"}, "client.id is set twice"),
    ],
)
def test_settings_that_need_or_exclude_each_other(settings: dict[str, Any], reason: str | None) -> None:
    if reason is None:
        read_settings(SERVER, settings)
    else:
        assert reason in refusal(**settings)


def test_missing_servers_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap.servers is missing"):
        read_settings({"group.id": "g"})


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(ConsumerSettings(sasl_password="hunter2", ssl_key_password="hunter2"))


def test_only_a_group_commits_automatically() -> None:
    assert not read_settings(SERVER).commits_automatically
    assert read_settings(SERVER, {"group.id": "g"}).commits_automatically
