"""Each package of the log opens with its map: every module named, and nothing else."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import raftlog

PACKAGES = ["raftlog", *(f"raftlog.{one.name}" for one in pkgutil.iter_modules(raftlog.__path__))]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_map_names_every_module_and_nothing_else(package: str) -> None:
    module = importlib.import_module(package)
    named = re.findall(r"^ *(\w+)/? {2,}\S", module.__doc__ or "", re.MULTILINE)
    assert sorted(named) == sorted(one.name for one in pkgutil.iter_modules(module.__path__))
