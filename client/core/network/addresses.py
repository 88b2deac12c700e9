"""The addresses of a cluster's nodes, and the time for which each is left alone after a failure.

The bootstrap addresses are tried until Metadata names the nodes, and again once none of those can be reached
(KIP-899). Failures belong to an address, not to a connection, so that the next connection knows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from client.core.backoff import Backoff

PORT_MAX: Final = 65_535


class Address(NamedTuple):
    """The host and port of a listener."""

    host: str
    port: int

    @property
    def is_valid(self) -> bool:
        """Whether there can be a listener: a host, and a port of TCP."""
        return bool(self.host) and 0 < self.port <= PORT_MAX

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Failures(NamedTuple):
    backoff: Backoff
    until_ms: float
    setups: int
    """Attempts that did not lead to a usable connection."""


class AddressBook:
    """The bootstrap addresses and those of the known nodes.

    Back-off follows reconnect.backoff.ms and reconnect.backoff.max.ms."""

    def __init__(
        self,
        bootstrap: Iterable[tuple[str, int]],
        make_backoff: Callable[[], Backoff],
        uniform: Callable[[], float],
    ) -> None:
        self.bootstrap = tuple(Address(host, port) for host, port in bootstrap)
        self.nodes: dict[int, Address] = {}
        """The addresses by node id, as Metadata has them."""
        self._make_backoff = make_backoff
        self._uniform = uniform
        self._failures: dict[Address, _Failures] = {}

    def set_nodes(self, nodes: dict[int, Address]) -> None:
        """Take the nodes of the newest Metadata; failures of addresses that are gone are forgotten."""
        self.nodes = nodes
        kept = {*nodes.values(), *self.bootstrap}
        self._failures = {address: one for address, one in self._failures.items() if address in kept}

    def node_at(self, address: Address) -> int:
        """Return the id of the node at an address, -1 if it is not known."""
        return next((node_id for node_id, known in self.nodes.items() if known == address), -1)

    def failed(self, address: Address, now_ms: float, *, was_set_up: bool) -> None:
        """Count a failure of an address: no connection was made, or it ended."""
        known = self._failures.get(address)
        backoff = known.backoff if known is not None else self._make_backoff()
        setups = self.failed_setups(address) + (not was_set_up)
        self._failures[address] = _Failures(backoff, now_ms + backoff.next_ms(), setups)

    def succeeded(self, address: Address) -> None:
        """Forget the failures of an address, whose node has answered."""
        self._failures.pop(address, None)

    def wait_ms(self, address: Address, now_ms: float) -> float:
        """Return the ms for which an address is still left alone; 0 if it may be tried."""
        known = self._failures.get(address)
        return max(0.0, known.until_ms - now_ms) if known is not None else 0.0

    def failed_setups(self, address: Address) -> int:
        """Return the number of attempts that failed since a connection to the address was last usable."""
        known = self._failures.get(address)
        return known.setups if known is not None else 0

    def has_failed(self, address: Address) -> bool:
        """Return whether the last attempt at the address failed."""
        return address in self._failures

    def choose(self, excluded: Iterable[Address], now_ms: float) -> tuple[Address | None, float]:
        """Choose the address to try for a request that any node can answer.

        It is one of the known nodes; once all of them have failed, it may be a bootstrap address. Returns it
        and 0, or None and the time after which one may be tried (infinite if all of them are excluded).
        """
        nodes = list(dict.fromkeys(self.nodes.values()))
        if all(address in self._failures for address in nodes):
            nodes = list(dict.fromkeys([*nodes, *self.bootstrap]))
        busy = set(excluded)
        waits = {address: self.wait_ms(address, now_ms) for address in nodes if address not in busy}
        usable = [address for address, wait_ms in waits.items() if wait_ms <= 0]
        if usable:
            fresh = [address for address in usable if address not in self._failures] or usable
            return fresh[int(self._uniform() * len(fresh))], 0.0
        return None, min(waits.values(), default=float("inf"))
