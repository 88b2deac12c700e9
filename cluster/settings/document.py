"""docs/configuration.md, made from the table of settings so that it cannot disagree with it.

`python -m cluster.settings.document > docs/configuration.md` writes it; a test compares the two.
"""

from __future__ import annotations

from cluster.settings.sources import ENVIRONMENT_PREFIX
from cluster.settings.table import Setting, Value, table

_HEAD = """\
# Configuration

Made by `python -m cluster.settings.document`; edit `cluster/settings/table.py` instead.

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


def render() -> str:
    """The whole document, with a newline at its end."""
    return _HEAD.format(prefix=ENVIRONMENT_PREFIX) + "".join(_line(setting) for setting in table())


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
