"""The guards of docs/leases.md as they stand there: a former owner's late write changes nothing."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "leases.md").read_text(encoding="utf-8")


def block(language: str, word: str) -> str:
    """Return the page's only block in a language that has a word."""
    (found,) = (text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if word in text)
    return found


# SQL.

DEFINITION, GUARD, UPDATE, _ = re.sub("--.*", "", block("sql", "fence")).split(";")
"""The statements of the page, without comments."""


def results(database: sqlite3.Connection) -> list[tuple[int, int]]:
    return database.execute("SELECT part, total FROM results ORDER BY part").fetchall()


@pytest.fixture
def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE results (part int PRIMARY KEY, total int)")
    connection.execute("INSERT INTO results VALUES (0, 0), (1, 0)")
    connection.execute(DEFINITION)
    return connection


def write(database: sqlite3.Connection, part: int, token: int, total: int) -> bool:
    """Make a guarded write. Returns whether it was let through."""
    database.execute("BEGIN")
    values = {"topic": "tenants", "part": part, "token": token, "total": total}
    if not database.execute(GUARD, values).rowcount:
        database.execute("ROLLBACK")
        return False
    database.execute(UPDATE, values)
    database.execute("COMMIT")
    return True


def test_sql_refuses_a_lower_token_for_the_same_partition_only(database: sqlite3.Connection) -> None:
    assert write(database, 0, 4, 10)
    assert write(database, 0, 4, 11), "the same owner goes on"
    assert write(database, 0, 9, 20)
    assert not write(database, 0, 4, 12), "the former owner wakes up"
    assert write(database, 1, 4, 30)
    assert results(database) == [(0, 20), (1, 30)]


# An object store with conditional writes.


class Object(NamedTuple):
    data: str
    token: int
    version: int


@dataclass
class ObjectStore:
    """A store whose writes name the version that they replace, None for a new object."""

    objects: dict[str, Object] = field(default_factory=dict)
    before_put: Callable[[], None] = lambda: None

    def get(self, key: str) -> Object | None:
        return self.objects.get(key)

    def put_if(self, key: str, data: str, token: int, version: int | None) -> bool:
        meanwhile, self.before_put = self.before_put, lambda: None
        meanwhile()
        found = self.objects.get(key)
        if (None if found is None else found.version) != version:
            return False
        self.objects[key] = Object(data, token, (version or 0) + 1)
        return True


class Fenced(Exception):
    pass


def guarded_write() -> Callable[..., None]:
    names: dict[str, Any] = {"Fenced": Fenced}
    exec(block("python", "put_if"), names)
    found: Callable[..., None] = names["guarded_write"]
    return found


def test_an_object_store_refuses_a_lower_token() -> None:
    store, guarded = ObjectStore(), guarded_write()
    guarded(store, "tenants/0", 4, "first")
    guarded(store, "tenants/0", 9, "second")
    with pytest.raises(Fenced, match="written with token 9, this lease has 4"):
        guarded(store, "tenants/0", 4, "late")
    assert store.objects["tenants/0"].data == "second"


@pytest.mark.parametrize(("late", "kept"), [(4, "newer"), (12, "late")])
def test_a_write_between_look_and_write_is_noticed(late: int, kept: str) -> None:
    """The owner of the higher token wins, whoever looked first."""
    store, guarded = ObjectStore(), guarded_write()
    store.before_put = lambda: guarded(store, "tenants/0", 9, "newer")
    try:
        guarded(store, "tenants/0", late, "late")
    except Fenced:
        assert late < 9
    assert store.objects["tenants/0"].data == kept
