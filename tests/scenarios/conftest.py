"""`pytest tests/scenarios --rewrite-scenarios` writes the stories anew from what the node does now."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios", action="store_true", help="rewrite tests/scenarios/*.txt from what happens now"
    )
