"""The nodes of a running cluster over HTTP: asks one, and the others if it does not answer.

This is for long reads, which must survive the failure of a node. Connections stay open between requests. The
invariants: every request ends within a time limit; a node that answers "retry later" is left alone until
then; only nodes of one cluster are asked, however their addresses were found.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from quorate.errors import CommandError, ExitCode
from quorate.http_client import (
    IN_MEMORY,
    OK,
    OTHERS_TIMEOUT_S,
    Answer,
    Connections,
    Into,
    check_address,
    node_url,
    not_a_node,
    reason,
    urls_of,
    way_out,
)

PAUSE_S = 0.1
"""Seconds before all nodes are asked again after none could answer."""

RETRY_AFTER_S_MAX = 5.0
"""Upper bound in seconds on a node's Retry-After."""

NODES_MAX = 100
"""Limit on the addresses that are remembered."""

GONE, TOO_MANY, INTERNAL, UNAVAILABLE = 410, 429, 500, 503

OTHERS_MAY = (GONE, INTERNAL, UNAVAILABLE, TOO_MANY)
"""Statuses for which another node is tried, the most informative answer first."""


class Unheard(CommandError):
    """No node answered in time, or, `is_refused`, none could do more than say why it cannot now."""

    def __init__(self, nodes: str, why: str, *, is_refused: bool = False) -> None:
        some, one = ("can answer", "cannot answer") if is_refused else ("responds", "does not respond")
        super().__init__(
            f"none of {nodes} {some} ({why})" if "," in nodes else f"{nodes} {one} ({why})",
            hint="`quorate cluster status` shows what is missing" if is_refused else way_out(why),
            code=ExitCode.UNREACHABLE,
        )


class Nodes:
    """The cluster with nodes at `urls` (with commas).

    After `meet`: `ids` has the node id of each URL that has answered; `silent` the reason for each node that
    has not; `commit_index` the highest one reported for each shard.
    """

    def __init__(self, urls: str, timeout_s: float) -> None:
        self.urls = urls_of(urls)
        for url in self.urls:
            check_address(url)
        self.timeout_s = timeout_s
        self.cluster_id = ""
        self.shards: tuple[int, ...] = ()
        self.ids: dict[str, int] = {}
        self.silent: dict[int, str] = {}
        self.commit_index: dict[int, int] = {}
        self._connections = Connections()
        self._not_before_s: dict[str, float] = {}

    # Membership

    def meet(self, *, everyone: bool = True) -> None:
        """Find the cluster and the addresses of its nodes; raises `CommandError` if none answers.

        Every node is asked, in order to know which ones are silent and how far the log is; without
        `everyone` the first answer is enough.
        """
        given, asked = set(self.urls), list(self.urls)
        unheard: dict[str, str] = {}
        named: dict[int, str] = {}
        for url in asked:  # grows as addresses are found
            one_s = OTHERS_TIMEOUT_S if len(asked) > 1 else self.timeout_s
            try:
                document = _cluster(self._connections.ask(url, "/v1/cluster", one_s))
            except OSError as error:
                unheard[url] = reason(error)
                continue
            if self.cluster_id and document["cluster_id"] != self.cluster_id:
                if url in given:
                    raise _strangers(url, document["cluster_id"], self.cluster_id)
                continue
            self._take(url, document)
            for node in document["nodes"]:
                named.setdefault(node["node_id"], "")
                if node["http"] and node["http"]["port"]:
                    named[node["node_id"]] = address = node_url(node["http"])
                    is_new = node["node_id"] not in self.ids.values() and address not in asked
                    asked += [address] if is_new and len(asked) < NODES_MAX else []
            if not everyone:  # the other given ones may be of another cluster
                asked = list(dict.fromkeys([url, *filter(None, named.values())]))
                break
        if not self.ids:
            raise Unheard(", ".join(self.urls), next(iter(unheard.values())))
        self.silent = {
            node_id: unheard.get(address, "no link to it")
            for node_id, address in named.items()
            if node_id not in self.ids.values()
        }
        self.urls = self._one_each(asked)

    def _take(self, url: str, document: dict[str, Any]) -> None:
        self.cluster_id = document["cluster_id"]
        self.ids[url] = document["node_id"]
        for shard in document["shards"]:
            number, commit_index = shard["shard"], shard["log"]["commit_index"]
            self.commit_index[number] = max(self.commit_index.get(number, 0), commit_index)
        self.shards = tuple(sorted(self.commit_index))

    def _one_each(self, asked: list[str]) -> list[str]:
        """One URL for each node that answered, then those without an answer, which may come back."""
        found: dict[int, str] = {}
        for url, node_id in self.ids.items():
            found.setdefault(node_id, url)
        return [*found.values(), *(url for url in asked if url not in self.ids)]

    def name(self, url: str) -> str:
        """``node 2``, or the URL if its id is not known."""
        return f"node {self.ids[url]}" if url in self.ids else url

    # Requests

    def ask(
        self, path: str, *, wait_ms: int = 0, timeout_s: float | None = None, into: Into = IN_MEMORY
    ) -> Answer:
        """The answer of the first node that has one; raises `Unheard` if none has within the time limit.

        If a node cannot answer but another might (it is busy, or has lost or damaged data), the others are
        asked before its error is returned.
        """
        deadline_s = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s) + wait_ms / 1000
        why = ""
        while True:
            refused: Answer | None = None
            for url in list(self.urls):
                try:
                    answer = self._patiently(url, path, wait_ms, deadline_s, into)
                except OSError as error:
                    why = f"{url}: {reason(error)}"
                    self._put_last(url)
                    continue
                if answer.status not in OTHERS_MAY:
                    return answer
                refused = answer if refused is None or _says_more(answer, refused) else refused
            if refused is not None and refused.status in (GONE, INTERNAL):
                return refused
            if refused is not None:
                why = refused.words
            if time.monotonic() + PAUSE_S >= deadline_s:
                raise Unheard(", ".join(self.urls), why, is_refused=refused is not None)
            time.sleep(PAUSE_S)

    def ask_each(self, path: str) -> dict[str, Answer | str]:
        """The answer of every node, or the reason why there is none, by URL."""
        found: dict[str, Answer | str] = {}
        for url in self.urls:
            try:
                answer = self._patiently(url, path, 0, time.monotonic() + self.timeout_s, IN_MEMORY)
            except OSError as error:
                found[url] = reason(error)
            else:
                found[url] = answer if answer.status == OK else answer.words
        return found

    def rotate(self) -> None:
        """Ask another node next time: this one may be partitioned and unaware of new entries."""
        self._put_last(self.urls[0])

    def _put_last(self, url: str) -> None:
        self.urls.remove(url)
        self.urls.append(url)

    def _patiently(self, url: str, path: str, wait_ms: int, deadline_s: float, into: Into) -> Answer:
        """The answer of one node; if it is the only one, its Retry-After is waited for."""
        is_alone = len(self.urls) == 1
        one_s = self.timeout_s if is_alone else min(self.timeout_s, OTHERS_TIMEOUT_S)
        while True:
            pause_s = self._not_before_s.get(url, 0.0) - time.monotonic()
            if pause_s > 0 and not is_alone:
                raise ConnectionError("it is busy and asked to try again later")
            if pause_s > 0:
                time.sleep(min(pause_s, max(0.0, deadline_s - time.monotonic())))
            answer = self._connections.ask(url, path, one_s + wait_ms / 1000, into=into)
            if answer.status not in (TOO_MANY, UNAVAILABLE):
                return answer
            later_s = _seconds(answer.headers.get("retry-after", ""))
            self._not_before_s[url] = time.monotonic() + later_s
            if not is_alone or time.monotonic() + max(later_s, PAUSE_S) >= deadline_s:
                return answer
            time.sleep(PAUSE_S)


def _cluster(answer: Answer) -> dict[str, Any]:
    """The document of /v1/cluster; raises `CommandError` if it is not one."""
    if answer.status in (TOO_MANY, UNAVAILABLE):
        raise Unheard(answer.node, answer.words, is_refused=True)
    with contextlib.suppress(KeyError, TypeError):
        document: dict[str, Any] = answer.document
        numbers, names = [document["node_id"]], [document["cluster_id"]]
        for shard in document["shards"]:
            numbers += [shard["shard"], shard["log"]["commit_index"]]
        for node in document["nodes"]:
            numbers.append(node["node_id"])
            if (address := node["http"]) and address["port"]:
                numbers.append(address["port"])
                names.append(address["host"])
        are_numbers = all(isinstance(one, int) for one in numbers)
        if document["shards"] and are_numbers and all(isinstance(one, str) for one in names):
            return document
    raise not_a_node(answer.node)


def _strangers(url: str, cluster_id: str, other: str) -> CommandError:
    return CommandError(
        f"{url} belongs to cluster {cluster_id}, not to {other}",
        hint="give nodes of one cluster with --url",
        code=ExitCode.USAGE,
    )


def _says_more(answer: Answer, other: Answer) -> bool:
    """Whether an error is the better one of two; of two about removed entries, the one that keeps more."""
    if answer.status == other.status == GONE:
        return answer.first_index < other.first_index
    return OTHERS_MAY.index(answer.status) < OTHERS_MAY.index(other.status)


def _seconds(text: str) -> float:
    return min(float(text), RETRY_AFTER_S_MAX) if text.isdecimal() else 0.0
