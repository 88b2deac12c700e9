"""docs/configuration.md, generated from the table of settings so that the two cannot disagree.

`python -m tests.configuration_page > docs/configuration.md` writes it; a test compares the two.
"""

from __future__ import annotations

from cluster.interval_rule import COST_FIRST_MS, COST_MIN_MS, IntervalRule, Load
from cluster.settings.sources import ENVIRONMENT_PREFIX
from cluster.settings.table import Setting, Settings, Value, table

_HEAD = """\
# Configuration

Made by `python -m tests.configuration_page`; edit `cluster/settings/table.py` instead.

A setting comes from, each overriding the one before: its default, a TOML file (`quorate node --config FILE`),
the environment, a flag. In the file a dotted name may be spread over sections:

```toml
[kafka]
port = 9092

[group.consumer]
session.timeout.ms = 30_000
```

The same in the environment is `{prefix}KAFKA_PORT=9092`, as a flag `--kafka-port 9092`. A name that is not in
this table, or a value that cannot work, stops the node with one line that names the place and the nearest
known setting.

| Setting | Default | Unit | Range | Why |
|---|---|---|---|---|
"""


_TAIL = """
## The heartbeat interval

A member is told with each reply when to heartbeat next. Which interval that is, the first that applies:

1. `consumer.heartbeat.interval.ms` of its group, if the group sets one (`quorate groups config GROUP --set`),
   within the bounds;
2. with `group.consumer.heartbeat.interval.adaptive` (the default) the interval that the node chooses between
   `group.consumer.min.heartbeat.interval.ms` and `group.consumer.max.heartbeat.interval.ms`. It begins with
   `group.consumer.heartbeat.interval.ms`, and is at most a third of the group's session;
3. without it, `group.consumer.heartbeat.interval.ms`.

The node looks once a second at how many members it serves, what a heartbeat costs its loop, and how long
replies take. It chooses the least step of a ladder (from the minimum up, each a half or a third more) at
which heartbeats take no more than a tenth of the loop, and which is ten times the p99 of reply times; above
1,000 ms three times it will do, so below 1,000 ms it goes only if replies are that quick. More load raises
the interval at once, slow replies at the second look. It is lowered after five looks in a row (the first
change of all: after one) that leave room to spare, not before each member has heard of the last change, and
only while heartbeats are seen.
Settled, with what a cached heartbeat costs here:

| Members of one node | {members} |
|---|{rules}|
| Interval, ms | {intervals} |

A new leader takes it that each member's first heartbeat costs {first:g} ms, and begins accordingly. Clients
follow from their next reply on; their sessions are not affected. `GET /v1/cluster` shows the choice and
what it was made from under `heartbeats`, `/metrics` has the same as `quorate_heartbeat_*`. What holds for
one group is in `quorate groups config GROUP` and `GET /v1/groups/GROUP/configs?consistent=1`: the value, its
bounds, and whether it is the group's own, chosen by the load, or the nodes' setting. Kafka's DescribeConfigs
says only what is set.
"""

_EXAMPLES = (10, 100, 1_000, 2_000, 5_000, 10_000, 30_000)


def render() -> str:
    """Return the whole document, with a newline at its end."""
    rows = "".join(_line(setting) for setting in table())
    tail = _TAIL.format(
        members=" | ".join(f"{members:,}" for members in _EXAMPLES),
        rules="|".join("---" for _ in _EXAMPLES),
        intervals=" | ".join(f"{_settled(members):,}" for members in _EXAMPLES),
        first=COST_FIRST_MS,
    )
    return _HEAD.format(prefix=ENVIRONMENT_PREFIX) + rows + tail


def _settled(members: int) -> int:
    """Return the interval on which the rule settles for this many members and the least cost."""
    settings = Settings().group_settings()
    low_ms, high_ms = settings.heartbeat_interval_min_ms, settings.heartbeat_interval_max_ms
    rule = IntervalRule(low_ms, settings.heartbeat_interval_ms, high_ms)
    load = Load(
        members=members,
        heartbeats=members,
        requests=members,
        busy_ms=members * COST_MIN_MS / 2,
        reply_p99_ms=1,
    )
    for _ in range(100):
        rule.look(load)
    return rule.interval_ms


def _line(setting: Setting) -> str:
    span = "" if setting.low is None else f"{_number(setting.low)} – {_number(setting.high)}"
    return f"| `{setting.name}` | {_value(setting.default)} | {setting.unit} | {span} | {setting.reason} |\n"


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _number(value)
    if isinstance(value, tuple):
        return ", ".join(f"`{part}`" for part in value)
    return f"`{value}`" if value else "(empty)"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}".replace("-", "−")


if __name__ == "__main__":
    print(render(), end="")
