"""A public class name says what the class is, so no two rooms, and no two modules of one, share a name."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ("records", "wire", "coordinator", "raftlog", "cluster", "history", "pipeline", "quorate")
MESSAGES = ROOT / "wire" / "messages"
"""The schemas of the protocol, which nest equal names."""


def _public_classes() -> Iterator[tuple[str, str]]:
    """Names of classes that other modules can import, and the module's path."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if MESSAGES in path.parents:
                continue
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, path.relative_to(ROOT).as_posix()


def test_public_class_names_are_unique() -> None:
    paths: dict[str, list[str]] = defaultdict(list)
    for name, path in _public_classes():
        paths[name].append(path)
    assert len(paths) > 500, "no classes found"
    assert not {name: found for name, found in paths.items() if len(found) > 1}
