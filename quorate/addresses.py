"""The addresses of the cluster that a command asks; each kind leads to the other.

What is given on the command line comes first, then the variables `QUORATE_BOOTSTRAP` and `QUORATE_URL`, then
the addresses of `quorate up --nodes 3`. If only one kind is given, the other is asked of that cluster, not
taken from a later place, which may name another cluster. `GET /v1/cluster` names the Kafka address of each
node; Kafka's DescribeConfigs names the settings of the node that is asked, and so its HTTP address.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from quorate.errors import CommandError, ExitCode

BOOTSTRAP_VARIABLE, URL_VARIABLE = "QUORATE_BOOTSTRAP", "QUORATE_URL"

DEFAULT_BOOTSTRAP = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
DEFAULT_URL = "http://127.0.0.1:8092,http://127.0.0.1:8093,http://127.0.0.1:8094"
"""The addresses of `quorate up --nodes 3` by default; all of them, since any node may be down."""


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """The addresses that are known, each None if it has to be looked up; never both."""

    bootstrap: str | None
    url: str | None

    def kafka(self, timeout_s: float) -> str:
        """HOST:PORT of the nodes, with commas; raises `CommandError` if HTTP does not tell."""
        if self.bootstrap is not None:
            return self.bootstrap
        from quorate.http_client import ask_json, first_of, not_a_node

        assert self.url is not None
        document, url = first_of(self.url, timeout_s, lambda one, one_s: ask_json(one + "/v1/cluster", one_s))
        try:
            known = [node["kafka"] for node in document["nodes"] if node["kafka"] and node["kafka"]["port"]]
            addresses = [host_port(address["host"], address["port"]) for address in known]
        except (KeyError, TypeError) as error:
            raise not_a_node(url) from error
        if not addresses:
            raise CommandError(
                f"{url} names no Kafka address", hint="give one with --bootstrap", code=ExitCode.UNREACHABLE
            )
        return ",".join(addresses)

    def http(self, timeout_s: float) -> str:
        """The URLs of nodes, with commas; raises `CommandError` if Kafka's side does not tell."""
        if self.url is not None:
            return self.url
        from quorate.client import Client

        assert self.bootstrap is not None
        with Client(self.bootstrap, timeout_s=timeout_s) as client:
            found = client.http_addresses()
        if not found:
            raise CommandError(
                f"the cluster at {self.bootstrap} names no HTTP address",
                hint="give one with --url",
                code=ExitCode.UNREACHABLE,
            )
        return ",".join(f"http://{host_port(host, port)}" for host, port in found)


def place_of_cluster(
    bootstrap: str | None, url: str | None, environ: Mapping[str, str] = os.environ
) -> ClusterPlace:
    """The addresses by precedence: the command line, then the variables, then the defaults."""
    for place in (
        ClusterPlace(bootstrap, url),
        ClusterPlace(environ.get(BOOTSTRAP_VARIABLE) or None, environ.get(URL_VARIABLE) or None),
    ):
        if place.bootstrap is not None or place.url is not None:
            return place
    return ClusterPlace(DEFAULT_BOOTSTRAP, DEFAULT_URL)


def host_port(host: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
