"""The directory of a cluster of several nodes on one machine, as a launcher makes it.

    cluster.json     cluster id, number of shards, whether all of it was formatted; for each node pid, ports,
                     directory and command, for scripts
    secret           the nodes' proof to each other that they belong together; mode 0600
    lock             held by the one process that launched the nodes
    node-1, …        one directory for each node

Invariants: an empty disk must not vote. If the directory of a node is missing in a cluster that was
formatted before, it is never created again here; the launch is refused, and the way out named.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster.host.fresh_ids import fresh_id
from cluster.launching.node_process import EXIT_STOPPED, LaunchError
from cluster.settings import SettingsError, load_settings
from raftlog.env.errors import RaftlogError
from raftlog.env.files import OsFiles, replace
from raftlog.storage.directory import LOCK_FILE, NODE_FILE, NodeIdentity, format_node

CLUSTER_FILE: Final = "cluster.json"
SECRET_FILE: Final = "secret"
SECRET_BYTES: Final = 32
EXIT_USAGE: Final = 2
UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of a disk that is full or read-only."""

LAUNCHERS_OWN: Final = frozenset(
    {"node.id", "data.dir", "kafka.port", "http.port", "peer.port", "cluster.nodes"}
    | {"kafka.advertised.port", "http.advertised.port"}
)
"""Settings that differ from node to node, so that one value for all of them cannot work."""

OTHER_DIRECTORY: Final = "give another directory with --data, or remove this one if you need nothing in it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """The content of a cluster's directory, planned or existing; `settings` are those of every node."""

    data: Path
    cluster_id: str
    node_ids: tuple[int, ...]
    num_shards: int
    settings: dict[str, object]
    is_formatted: bool

    def home(self, node_id: int) -> Path:
        return self.data / f"node-{node_id}"


@contextlib.contextmanager
def kept_if_ready(data: Path) -> Iterator[Callable[[], None]]:
    """Create the directory if it is missing; remove it again unless the function that this yields is called.

    What was there before stays, and so does a directory that another process uses by now.
    """
    missing = [path for path in (data, *data.parents) if not path.exists()]
    is_ours = False
    with contextlib.suppress(OSError):  # whoever uses the directory reports it
        data.parent.mkdir(parents=True, exist_ok=True)
        data.mkdir()
        is_ours = True

    def keep() -> None:
        nonlocal is_ours
        is_ours = False

    try:
        yield keep
    finally:
        if is_ours:
            with contextlib.suppress(OSError):
                lock = OsFiles().lock(str(data / LOCK_FILE))
                try:
                    shutil.rmtree(data)
                finally:
                    lock.release()
        if not data.exists():
            for path in missing[1:]:
                with contextlib.suppress(OSError):
                    path.rmdir()


def plan_cluster(data: Path, num_nodes: int, settings: Mapping[str, str]) -> ClusterPlan:
    """Check everything that can be checked before anything is written."""
    if own := sorted(LAUNCHERS_OWN & settings.keys()):
        raise LaunchError(f"{own[0]} differs between nodes, so the launcher sets it: remove it", EXIT_USAGE)
    if (data / NODE_FILE).exists():
        raise LaunchError(
            f"{data} is the directory of a cluster of one node, which cannot grow: {OTHER_DIRECTORY}",
            EXIT_USAGE,
        )
    wanted = load_settings(None, {}, settings)
    document = read_document(data)
    if document is None:
        foreign = [path.name for path in data.iterdir() if path.name != LOCK_FILE] if data.exists() else []
        if foreign:
            raise LaunchError(f"{data} is not empty ({foreign[0]} is in it): choose an empty directory")
        document = {"cluster_id": fresh_id(), "shards": wanted.cluster_shards, "formatted": False}
        document["nodes"] = [{"id": node_id} for node_id in range(1, num_nodes + 1)]
    node_ids = tuple(row["id"] for row in document["nodes"])
    for name, given, made in (
        ("--nodes", num_nodes, len(node_ids)),
        ("cluster.shards", wanted.cluster_shards, document["shards"]),
    ):
        if given != made and (name == "--nodes" or "cluster.shards" in settings):
            raise LaunchError(
                f"{name} = {given}, but the cluster on {data} was made with {made}, which cannot be changed: "
                f"{OTHER_DIRECTORY}",
                EXIT_USAGE,
            )
    return ClusterPlan(
        data=data.resolve(),
        cluster_id=document["cluster_id"],
        node_ids=node_ids,
        num_shards=document["shards"],
        settings={**settings, "cluster.shards": document["shards"]},
        is_formatted=document["formatted"],
    )


def format_cluster(plan: ClusterPlan) -> None:
    """Write what is missing. The document first states the plan, and last that it is complete."""
    missing = [node_id for node_id in plan.node_ids if not (plan.home(node_id) / NODE_FILE).exists()]
    if plan.is_formatted and missing:
        raise LaunchError(_gone(plan, missing[0]))
    _make_secret(plan.data / SECRET_FILE)
    if plan.is_formatted:
        return
    document: dict[str, Any] = {
        "cluster_id": plan.cluster_id,
        "shards": plan.num_shards,
        "formatted": False,
        "nodes": [{"id": node_id} for node_id in plan.node_ids],
    }
    write_document(plan.data, document)
    with ThreadPoolExecutor(len(plan.node_ids)) as disks:  # formatting is mostly waiting for the disk
        for made in [disks.submit(_format_member, plan, node_id) for node_id in missing]:
            made.result()
    write_document(plan.data, {**document, "formatted": True})


def _format_member(plan: ClusterPlan, node_id: int) -> None:
    from records import LATEST_FORMAT_LEVEL  # only formatting needs it

    identity = NodeIdentity(
        cluster_id=plan.cluster_id,
        node_id=node_id,
        incarnation=fresh_id(),
        num_shards=plan.num_shards,
        voters=plan.node_ids,
        starting_level=LATEST_FORMAT_LEVEL,
    )
    format_node(OsFiles(), str(plan.home(node_id)), identity)


def _gone(plan: ClusterPlan, node_id: int) -> str:
    home = plan.home(node_id)
    return (
        f"{home} is empty or missing, so the node's acknowledged entries are lost; a new disk participates "
        f"only after `quorate node format --replace --data {home} --node-id {node_id} --cluster-id "
        f"{plan.cluster_id} --nodes {','.join(map(str, plan.node_ids))} --shards {plan.num_shards}`"
    )


def _make_secret(path: Path) -> None:
    if path.exists():
        return
    aside = path.with_name(path.name + ".new")
    with open(os.open(aside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(secrets.token_hex(SECRET_BYTES) + "\n")
    aside.replace(path)


def read_document(data: Path) -> dict[str, Any] | None:
    """Return the content of cluster.json, or None; raises LaunchError if the file is not ours."""
    path = data / CLUSTER_FILE
    try:
        found = json.loads(path.read_text("utf-8"))
        _ = [row["id"] for row in found["nodes"]], found["cluster_id"], found["shards"], found["formatted"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LaunchError(
            f"cannot read {path}: {error.strerror}: run this as the user who started the cluster, or make "
            "the file readable"
        ) from error
    except (ValueError, TypeError, KeyError) as error:
        raise LaunchError(
            f"{path} is not what the launcher wrote ({error}): restore the file from a copy"
        ) from error
    return dict(found)


def write_document(data: Path, document: Mapping[str, Any]) -> None:
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    replace(OsFiles(), str(data / CLUSTER_FILE), text.encode())


@contextlib.contextmanager
def as_launch_errors(what: str) -> Iterator[None]:
    """Turn the errors that a directory and its settings can cause into LaunchErrors of one line."""
    try:
        yield
    except SettingsError as error:
        raise LaunchError(str(error), EXIT_USAGE) from error
    except BlockingIOError as error:
        raise LaunchError(f"{what}: another process uses it: stop it first") from error
    except OSError as error:
        where = f" ({error.filename})" if error.filename is not None else ""
        said = error if error.strerror is None else f"{error.strerror}{where}"
        if error.errno in UNWRITABLE:
            raise LaunchError(
                f"{what}: {said}: free space, or choose another directory", EXIT_STOPPED
            ) from error
        raise LaunchError(f"{what}: {said}") from error
    except (RaftlogError, ValueError) as error:
        raise LaunchError(f"{what}: {error}") from error
