"""`quorate settings`: the settings of a node, read from their table as docs/configuration.md is."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any

from quorate.commands.options import Json, argument
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, print_table, say

if TYPE_CHECKING:
    from cluster.settings import Setting


def settings(
    name: Annotated[str | None, argument("[NAME]", "A setting, or a part of the names of several.")] = None,
    json: Json = False,
) -> None:
    """List the settings of a node: default, unit, range and meaning; or show one in full.

    A name may be written as in a file (kafka.port), as a flag (--kafka-port after a --) or as a variable
    (QUORATE_KAFKA_PORT).

    Example: quorate settings group.consumer.session.timeout.ms
    """
    from cluster.settings import table

    found = table() if name is None else _named(name, table())
    if json:
        print_json({"settings": [_document(setting) for setting in found]})
    elif name is not None and len(found) == 1:
        _show(found[0])
    else:
        rows = [
            (one.name, _value(one.default), one.unit or None, _range(one) or None, one.reason)
            for one in found
        ]
        print_table(("SETTING", "DEFAULT", "UNIT", "RANGE", "MEANING"), rows)


def _named(text: str, known: tuple[Setting, ...]) -> tuple[Setting, ...]:
    """The setting of that name, else those whose names contain it; raises `CommandError` (usage)."""
    from cluster.settings.sources import ENVIRONMENT_PREFIX

    attribute = text.removeprefix("--").replace("-", "_").replace(".", "_").lower()
    attribute = attribute.removeprefix(ENVIRONMENT_PREFIX.lower())
    by_attribute = {setting.attribute: setting for setting in known}
    if attribute in by_attribute:
        return (by_attribute[attribute],)
    if found := tuple(setting for setting in known if attribute and attribute in setting.attribute):
        return found
    close = difflib.get_close_matches(attribute, by_attribute, n=1, cutoff=0.7)
    hint = f"did you mean {by_attribute[close[0]].name}?" if close else "`quorate settings` lists them all"
    raise CommandError(f"there is no setting {text!r}", hint=hint, code=ExitCode.USAGE)


def _show(setting: Setting) -> None:
    flag, variable = _flag(setting), _variable(setting)
    sample = _typed(setting)
    say(setting.name)
    lines = [
        ("default", " ".join(filter(None, (_value(setting.default), setting.unit)))),
        ("range", _range(setting)),
        ("meaning", setting.reason),
        ("set it", f"quorate node {flag} {sample}, {variable}={sample}, or in the file of --config"),
        ("", f"quorate up --set {setting.name}={sample}"),
    ]
    for title, text in lines:
        if text:
            say(f"  {title:9}{text}")


def _document(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "default": setting.default,
        "unit": setting.unit,
        "low": setting.low,
        "high": setting.high,
        "meaning": setting.reason,
        "flag": _flag(setting),
        "variable": _variable(setting),
    }


def _flag(setting: Setting) -> str:
    return f"--{setting.name.replace('.', '-')}"


def _variable(setting: Setting) -> str:
    from cluster.settings.sources import ENVIRONMENT_PREFIX

    return f"{ENVIRONMENT_PREFIX}{setting.attribute.upper()}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple):
        return ", ".join(value) or "(empty)"
    return str(value) or "(empty)"


def _typed(setting: Setting) -> str:
    """The default as one would type it."""
    if isinstance(setting.default, tuple):
        return ",".join(setting.default) or "TEXT"
    return _value(setting.default).replace(",", "") if setting.default != "" else "TEXT"


def _range(setting: Setting) -> str:
    return "" if setting.low is None or setting.high is None else f"{setting.low:,} to {setting.high:,}"
