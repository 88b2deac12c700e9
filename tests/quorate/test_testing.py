"""A cluster for a user's tests, without its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quorate import testing
from quorate.errors import CommandError


class StandIn:
    """A cluster that is launched."""

    bootstrap = "127.0.0.1:1"
    nodes: tuple[()] = ()
    is_running = True

    def kill(self) -> None:
        self.is_running = False


def test_a_cluster_that_cannot_be_made_ready_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    launched = StandIn()

    def refuse(*_: Any, **__: Any) -> None:
        raise CommandError("no node answers")

    monkeypatch.setattr(testing, "launch_cluster", lambda *_, **__: launched)
    monkeypatch.setattr(testing, "Client", refuse)
    with pytest.raises(CommandError):
        testing.QuorateCluster(tmp_path / "new")
    assert not launched.is_running
