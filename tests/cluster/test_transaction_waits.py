"""Requests about transactions wait for other nodes and shards, and how long at most."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.runtime.transaction_waits import COMPLETION_MAX_MS, KNOWN_MAX_MS, Completions, KnownWaits
from cluster.simulator import Network, World
from cluster.simulator.host import VirtualHost
from coordinator.transactions import TransactionsView
from raftlog.env.simulated_files import SimFiles
from records import TransactionState, TransactionValue


@pytest.fixture
def world() -> World:
    return World(1)


@pytest.fixture
def host(world: World) -> VirtualHost:
    return VirtualHost(world, Network(world), SimFiles(), name="node")


def value(state: TransactionState) -> TransactionValue:
    return TransactionValue(
        producer_id=1, producer_epoch=0, state=state, timeout_ms=1, last_update_timestamp_ms=0
    )


def test_a_reply_waits_until_its_transaction_is_complete(world: World, host: VirtualHost) -> None:
    view, told = TransactionsView(), list[str]()
    completions = Completions(host, lambda: view)
    completions.wait("t", lambda: told.append("not decided"))
    view.put("t", value(TransactionState.PREPARE_COMMIT))
    completions.wait("t", lambda: told.append("first"))
    completions.wait("t", lambda: told.append("repeated"))
    completions.learned([("other", value(TransactionState.COMPLETE_COMMIT))])
    assert told == ["not decided"]
    completions.learned([("t", value(TransactionState.COMPLETE_COMMIT))])
    assert told == ["not decided", "first", "repeated"]
    world.run_for(2 * COMPLETION_MAX_MS)
    assert len(told) == 3


@pytest.mark.parametrize("is_deposed", [False, True])
def test_a_reply_does_not_wait_for_ever(world: World, host: VirtualHost, is_deposed: bool) -> None:
    view, told = TransactionsView(), list[float]()
    view.put("t", value(TransactionState.PREPARE_ABORT))
    completions = Completions(host, lambda: view)
    completions.wait("t", lambda: told.append(world.now_ms))
    world.run_for(100)
    if is_deposed:
        completions.end_all()
    world.run_for(COMPLETION_MAX_MS)
    assert len(told) == 1


def test_a_request_waits_until_the_catalog_is_as_new(
    world: World, host: VirtualHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.runtime.transaction_waits.WAITING_MAX", 1)
    committed: Any = SimpleNamespace(known_ms=-1.0, observe_horizon=lambda: None)
    waits, told = KnownWaits(host, committed), list[str]()

    def ask(name: str) -> None:
        waits.when_known(lambda: told.append(name), lambda: told.append(f"{name}, unknown"))

    ask("waited")
    ask("one too many")
    world.run_for(200)
    assert told == ["one too many, unknown"]
    committed.known_ms = host.monotonic_ms()
    ask("at once")
    world.run_for(50)
    assert told[1:] == ["at once", "waited"]
    ask("late")
    world.run_for(KNOWN_MAX_MS / 2)
    assert told[3:] == []
    world.run_for(KNOWN_MAX_MS)
    assert told[3:] == ["late, unknown"]
