"""The sources of settings: defaults, then a TOML file, then `QUORATE_*`, then flags; a later one wins.

Invariants: nothing is ignored. An unknown name, a value of the wrong type or one that cannot work is
a SettingsError that states the source (and line) and the nearest known setting.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cluster.settings.table import Setting, Settings, SettingsError, Value, table

ENVIRONMENT_PREFIX = "QUORATE_"
NOT_SETTINGS = ("QUORATE_BOOTSTRAP", "QUORATE_URL")
"""Variables of the command line, which a node that is started from the same shell inherits."""

SETTINGS_FILE_MAX_BYTES = 1 << 20  # a settings file is a page; anything larger is the wrong file

_WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def load_settings(
    file: Path | None, env: Mapping[str, str], flags: Mapping[str, object] | None = None
) -> Settings:
    """Return the settings from all sources, checked.

    `file`: a TOML file or None. `env`: only names that begin with QUORATE_ are used. `flags`: setting name
    (dotted, dashed or underscored) to value, a string or the setting's own type; None means not given. Raises
    SettingsError.
    """
    values: dict[str, Value] = {}
    places: dict[str, str] = {}
    known = {setting.attribute: setting for setting in table()}
    for place, attribute, raw in _all(file, env, flags or {}):
        setting = known.get(attribute)
        if setting is None:
            is_flag = place.startswith("flag ")
            raise SettingsError(
                f"{place}: unknown setting {_shown(attribute)}{_nearest(attribute, known, is_flag=is_flag)}"
            )
        values[attribute] = _parsed(setting, raw, place)
        places[setting.name] = place
    try:
        return Settings(**values)  # type: ignore[arg-type]  # each value was parsed to its row's own type
    except SettingsError as error:
        raise SettingsError(_placed(str(error), places)) from None


def _all(
    file: Path | None, env: Mapping[str, str], flags: Mapping[str, object]
) -> Iterator[tuple[str, str, object]]:
    if file is not None:
        yield from _of_file(file)
    for name in sorted(env):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NOT_SETTINGS:
            yield f"environment variable {name}", name.removeprefix(ENVIRONMENT_PREFIX).lower(), env[name]
    for name, value in flags.items():
        if value is not None:
            yield (
                f"flag --{name.replace('_', '-').replace('.', '-')}",
                name.replace("-", "_").replace(".", "_"),
                value,
            )


def _of_file(file: Path) -> Iterator[tuple[str, str, object]]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(SETTINGS_FILE_MAX_BYTES + 1)
        if len(raw) > SETTINGS_FILE_MAX_BYTES:
            raise SettingsError(f"{file}: larger than {SETTINGS_FILE_MAX_BYTES} bytes, not a settings file")
        text = raw.decode()
        document = tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: not UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: not TOML: {error}") from None
    for path, value in _leaves(document, ()):
        line = _line_of(text, path)
        place = f"{file}, line {line}" if line else str(file)
        yield place, "_".join(path).replace(".", "_"), value


def _leaves(section: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _line_of(text: str, path: tuple[str, ...]) -> int:
    """Return the line of a key, found by headers and keys as a person reads them; 0 if not found."""
    wanted = ".".join(path)
    section = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("["):
            section = _plain(line.split("]")[0].strip("[")) + "."
        elif "=" in line and section + _plain(line.split("=")[0]) == wanted:
            return number
    return 0


def _plain(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def _parsed(setting: Setting, raw: object, place: str) -> Value:
    default = setting.default
    if isinstance(default, bool):
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.lower() in _WORDS:
            return _WORDS[raw.lower()]
    elif isinstance(default, int):
        if isinstance(raw, int) and not isinstance(raw, bool):
            return raw
        if isinstance(raw, str):
            try:
                return int(raw.replace(",", "").strip())
            except ValueError:
                pass
    elif isinstance(default, str):
        if isinstance(raw, str):
            return raw
    elif isinstance(raw, str):
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    elif isinstance(raw, list | tuple) and all(isinstance(part, str) for part in raw):
        return tuple(raw)
    kind = {bool: "true or false", int: "an integer", str: "a text", tuple: "a list of strings"}[
        type(default)
    ]
    unit = f" of {setting.unit}" if setting.unit else ""
    raise SettingsError(f"{place}: {setting.name} must be {kind}{unit}, not {raw!r}")


def _shown(attribute: str) -> str:
    return attribute.replace("_", ".")


def _nearest(attribute: str, known: Mapping[str, Setting], *, is_flag: bool) -> str:
    close = difflib.get_close_matches(attribute, known, n=1)
    if not close:
        return "; `quorate settings` lists them all"
    near = known[close[0]].name
    flag = f" (--{near.replace('.', '-')})" if is_flag else ""
    return f"; did you mean {near}{flag}?"


def _placed(message: str, places: Mapping[str, str]) -> str:
    """Prefix a message about a setting with its source, if the message begins with a setting that has one."""
    name = message.split(" ", 1)[0]
    return f"{places[name]}: {message}" if name in places else message
